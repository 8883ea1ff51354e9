// SPDX-License-Identifier: Apache-2.0
// stream_test_util.h: streams and events in the words of tests.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::simdev {

c10::impl::VirtualGuardImpl guard();

c10::Stream default_stream(int index);
// One that no other test has.
c10::Stream side_stream(int index);

c10::Event record(const c10::Stream& stream);
// `second` waits for what `first` was given so far.
void order(const c10::Stream& first, const c10::Stream& second);

template <class Function>
auto on(const c10::Stream& stream, const Function& function) {
  const c10::StreamGuard current(stream);
  return function();
}

}  // namespace lockstep::simdev
