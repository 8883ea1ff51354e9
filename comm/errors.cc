// SPDX-License-Identifier: Apache-2.0
#include "comm/errors.h"

#include <sstream>

namespace lockstep::comm {
namespace {

std::string with_context(const std::string& message, const ErrorContext& context) {
  std::ostringstream text;
  text << message;
  const char* separator = " (";
  if (context.rank) {
    text << separator << "rank " << *context.rank;
    separator = ", ";
  }
  if (context.device) {
    text << separator << "device " << *context.device;
  }
  if (context.rank || context.device) {
    text << ")";
  }
  return text.str();
}

}  // namespace

Error::Error(c10::SourceLocation location, const std::string& message, const ErrorContext& context)
    : c10::DistBackendError(location, with_context(message, context)), context_(context) {}

}  // namespace lockstep::comm
