// SPDX-License-Identifier: Apache-2.0
#include "comm/stream_order.h"

#include <c10/core/Event.h>

namespace lockstep::comm {

void make_wait(const c10::Stream& later, const c10::Stream& earlier) {
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

}  // namespace lockstep::comm
