// Stands before LibTorch's header of the same name, which each of its headers includes: a program
// built for the other layout of std::string stops here, not at pages of undefined symbols.
#pragma once
#include <cstddef>
#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI != %{abi}
#error "string ABI: LibTorch was built with _GLIBCXX_USE_CXX11_ABI=%{abi}, this file is compiled with _GLIBCXX_USE_CXX11_ABI=%{other}"
#endif
#include_next <torch/headeronly/macros/Macros.h>
