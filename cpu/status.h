// Outcome of an operation that can fail, and a value that may be missing for a stated reason.
// Nothing below gst/ throws across a public function; every failure travels as one of these.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <cassert>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace psnrhvs {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // the input cannot be scored as it is; the message says what to change
  kUnavailable,      // a device, driver, library or file is missing or refuses
  kOutOfMemory,      // host or device memory is exhausted
  kInternal,         // a device error, or a broken promise of this library
};

// Success, or a code with a message for people. Ignoring one is a compiler warning.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {
    assert(code != StatusCode::kOk);
  }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// A T, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                                  // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }  // NOLINT: likewise

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& operator*() {
    assert(ok());
    return *value_;
  }
  const T& operator*() const {
    assert(ok());
    return *value_;
  }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }

 private:
  Status status_;
  std::optional<T> value_;
};

// What `f` returns, a Status or a Result, or the Status that stands for what it threw: here exceptions end. `what`
// could not be done, such as "start the threads".
template <typename F>
auto CatchAll(const char* what, F f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, std::string("not enough memory to ") + what);
  } catch (const std::system_error& error) {
    return Status(StatusCode::kUnavailable, std::string("cannot ") + what + ": " + error.what());
  } catch (const std::exception& error) {
    return Status(StatusCode::kInternal, std::string("cannot ") + what + ": " + error.what());
  }
}

}  // namespace psnrhvs
