// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/interrupt.h"

#include <csignal>

namespace fashion_mnist {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;

void note_interrupt(int) { interrupt_seen = 1; }

}  // namespace

void watch_for_interrupt() {
  struct sigaction action = {};
  action.sa_handler = note_interrupt;
  sigemptyset(&action.sa_mask);
  // SA_RESETHAND gives the second Ctrl-C its usual meaning.
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return interrupt_seen != 0; }

}  // namespace fashion_mnist
