// Stands before LibTorch's header of the same name, which each of its headers includes: a program
// built for the other layout of std::string stops here, not at pages of undefined symbols, and one
// compiled as an older C++ not at pages of errors (a file that is not there ends a compilation).
#pragma once
#if __cplusplus < 201703L
#include "LibTorch needs C++17: compile with -std=c++17 or later (in Bazel: --cxxopt=-std=c++17)"
#endif
#include <cstddef>
#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI != %{abi}
#error "string ABI: LibTorch was built with _GLIBCXX_USE_CXX11_ABI=%{abi}, this file is compiled with _GLIBCXX_USE_CXX11_ABI=%{other}"
#endif
#include_next <torch/headeronly/macros/Macros.h>
