// SPDX-License-Identifier: Apache-2.0
// faults.h: what happens to a fault once it is found.
#pragma once

#include <string>
#include <vector>

namespace lockstep::simdev::internal {

// Notes the fault; throws RaceError unless faults are only collected.
void raise(const std::string& message);
// The same for several, of which the first is thrown.
void raise_all(const std::vector<std::string>& messages);
// Notes the fault; throw_pending() of this thread throws it unless faults are only collected.
void raise_later(const std::string& message);
void throw_pending();

// Forgets what is pending, in all threads.
void drop_pending();
// The faults since the last call, oldest first.
std::vector<std::string> take_faults();
// Whether faults are thrown; else they are only collected.
void throw_faults(bool on);

}  // namespace lockstep::simdev::internal
