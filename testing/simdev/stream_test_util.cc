// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/stream_test_util.h"

#include "testing/simdev/simdev.h"

namespace lockstep::simdev {

c10::impl::VirtualGuardImpl guard() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1);
}

c10::Stream default_stream(int index) { return guard().getDefaultStream(device(index)); }
c10::Stream side_stream(int index) { return guard().getNewStream(device(index)); }

c10::Event record(const c10::Stream& stream) {
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(stream);
  return event;
}

void order(const c10::Stream& first, const c10::Stream& second) { second.wait(record(first)); }

}  // namespace lockstep::simdev
