// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_errors.h"

#include <cstdint>
#include <sstream>

namespace lockstep::comm::nccl {

NcclError nccl_error(const NcclApi& nccl, const char* op, const char* call, Result result,
                     const ErrorContext& context) {
  std::ostringstream text;
  text << "[" << op << "] " << call << " failed: ";
  const char* const word = nccl.get_error_string(result);
  text << (word == nullptr ? "unknown result" : word) << " (result " << static_cast<int>(result)
       << ")";
  // NCCL keeps it for the process, whatever communicator is asked for.
  const char* const message = nccl.get_last_error(nullptr);
  if (message != nullptr && *message != '\0') {
    text << "; NCCL's last message: " << message;
  }
  return NcclError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text.str(), context);
}

}  // namespace lockstep::comm::nccl
