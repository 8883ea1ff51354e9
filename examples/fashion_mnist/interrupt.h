// SPDX-License-Identifier: Apache-2.0
// interrupt: Ctrl-C as a question a loop can ask. The first one asks the loop to stop at the next
// good moment; a second one ends the program at once.
#pragma once

namespace fashion_mnist {

// The exit status a shell expects of a program that Ctrl-C ended.
inline constexpr int kInterruptedExitCode = 130;

// From now on SIGINT is noted instead of ending the program.
void watch_for_interrupt();

bool interrupted();

}  // namespace fashion_mnist
