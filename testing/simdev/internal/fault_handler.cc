// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/fault_handler.h"

#include <c10/util/Exception.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "testing/simdev/internal/arena.h"
#include "testing/simdev/internal/memory.h"

namespace lockstep::simdev::internal {
namespace {

struct sigaction action_before;
pid_t home_process;

// A line of text put together without anything that a signal handler may not use.
class Line {
 public:
  Line& text(const char* text) {
    while (*text != '\0' && length_ < sizeof(bytes_)) {
      bytes_[length_++] = *text++;
    }
    return *this;
  }
  Line& number(size_t value) {
    char digits[21];
    char* digit = digits + sizeof(digits) - 1;
    *digit = '\0';
    do {
      *--digit = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value > 0);
    return text(digit);
  }
  void write_out() const {
    const ssize_t written = write(STDERR_FILENO, bytes_, length_);
    static_cast<void>(written);  // nothing can be done about it here
  }

 private:
  char bytes_[256];
  size_t length_ = 0;
};

const char* verb(const void* context) {
#if defined(__x86_64__)
  constexpr long long kWriteBit = 2;
  const auto* const registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return (registers[REG_ERR] & kWriteBit) != 0 ? "wrote" : "read";
#else
  static_cast<void>(context);
  return "touched";
#endif
}

void explain(const char* address, const void* context) {
  if (const int device = device_of_device_address(address); device >= 0) {
    Line()
        .text("[simdev] the host ")
        .text(verb(context))
        .text(" memory of simdev:")
        .number(static_cast<size_t>(device))
        .text(", byte ")
        .number(static_cast<size_t>(address - device_base(device)))
        .text(" of its arena: only operators reach it; copy the tensor to the CPU first\n")
        .write_out();
  } else if (device_of_kernel_address(address) >= 0 && getpid() != home_process) {
    Line()
        .text(
            "[simdev] a child of fork() used a simulated device: it has none of its memory; "
            "start a program of its own instead\n")
        .write_out();
  }
}

// Async-signal-safe.
void handle(int signal, siginfo_t* info, void* context) {
  explain(static_cast<const char*>(info->si_addr), context);
  if ((action_before.sa_flags & SA_SIGINFO) != 0) {
    action_before.sa_sigaction(signal, info, context);
  } else if (action_before.sa_handler != SIG_DFL && action_before.sa_handler != SIG_IGN) {
    action_before.sa_handler(signal);
  } else {
    // The access is tried again, and now ends the process.
    struct sigaction fatal = {};
    fatal.sa_handler = SIG_DFL;
    sigaction(signal, &fatal, nullptr);
  }
}

}  // namespace

void install_fault_handler() {
  home_process = getpid();
  struct sigaction action = {};
  action.sa_sigaction = &handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  TORCH_CHECK(sigaction(SIGSEGV, &action, &action_before) == 0,
              "[simdev] expected to install a handler for SIGSEGV, got: ", std::strerror(errno));
}

}  // namespace lockstep::simdev::internal
