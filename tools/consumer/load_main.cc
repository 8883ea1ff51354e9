// SPDX-License-Identifier: Apache-2.0
// usage: load_main global|local (LIBRARY FUNCTION)...
// Loads all libraries first, then calls each one's function, and exits by way of every destructor.
#include <dlfcn.h>

#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 4 || argc % 2 != 0) return 2;
  const int scope = std::string(argv[1]) == "global" ? RTLD_GLOBAL : RTLD_LOCAL;
  std::vector<void*> libraries;
  for (int i = 2; i < argc; i += 2) {
    libraries.push_back(dlopen(argv[i], RTLD_NOW | scope));
    if (libraries.back() == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
  }
  for (std::size_t i = 0; i < libraries.size(); ++i) {
    const char* name = argv[2 * i + 3];
    const auto function = reinterpret_cast<int (*)()>(dlsym(libraries[i], name));
    if (function == nullptr || function() != 0) {
      std::fprintf(stderr, "%s failed\n", name);
      return 1;
    }
    std::printf("%s\n", name);
  }
  return 0;
}
