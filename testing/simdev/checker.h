// SPDX-License-Identifier: Apache-2.0
// checker.h: finds accesses to device memory that nothing orders, by a vector clock per stream.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <vector>

namespace lockstep::simdev {

// A synchronisation fault. what() names both operations, their devices and streams and the bytes.
class RaceError : public c10::Error {
 public:
  using c10::Error::Error;
};

// What the checker does when it finds a fault.
enum class OnFault {
  kThrow,    // RaceError from the operation at fault; faults found where nothing may be thrown (a
             // free, a destructor) come out of the thread's next operation on a device
  kCollect,  // the operation goes on; take_reports() returns the message
};

// Modes and reports are the process's; all of these are safe to call from any thread. A mode stays
// until it is set again, also into the next test.
void set_checking(bool on);
bool checking();
void set_on_fault(OnFault what);

// The faults since the last call, oldest first, thrown or not, and forgets them. A test that catches
// a RaceError takes its report too, or fails at its end; finds_fault() does both.
std::vector<std::string> take_reports();

// Waits for all devices from the host and forgets pending faults and the history of accesses, so
// that one test cannot disturb the next. Returns the faults that nobody took.
std::vector<std::string> reset();

}  // namespace lockstep::simdev
