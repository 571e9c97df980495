// Result<T>: a value or a Status. SUBLET_TRY(auto x, Call()) declares x from a Result or returns
// its Status; SUBLET_RETURN_IF_ERROR(Call()) does it for Result<void>.
#pragma once

#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/status.h"

namespace sublet {

template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  // NOLINTNEXTLINE(google-explicit-constructor): a Result is written as its value or its error.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Status error) : state_(std::in_place_index<1>, std::move(error)) {}
  template <typename U>
  requires(std::is_convertible_v<U, T> && !std::is_same_v<std::decay_t<U>, T> &&
           !std::is_same_v<std::decay_t<U>, Status> && !std::is_same_v<std::decay_t<U>, Result>)
      Result(U&& value)
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    SUBLET_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    SUBLET_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    SUBLET_CHECK(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Status& error() const& {
    SUBLET_CHECK(!ok());
    return *std::get_if<1>(&state_);
  }
  Status&& error() && {
    SUBLET_CHECK(!ok());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Status> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Status error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const Status& error() const& {
    SUBLET_CHECK(!ok());
    return *std::get_if<1>(&state_);
  }
  Status&& error() && {
    SUBLET_CHECK(!ok());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<std::monostate, Status> state_;
};

inline Result<void> Ok() { return {}; }

}  // namespace sublet

#define SUBLET_CONCAT_INNER(a, b) a##b
#define SUBLET_CONCAT(a, b) SUBLET_CONCAT_INNER(a, b)
#define SUBLET_TRY_IMPL(result, declaration, ...) \
  auto result = (__VA_ARGS__);                    \
  if (!result.ok()) {                             \
    return std::move(result).error();             \
  }                                               \
  declaration = std::move(result).value()
#define SUBLET_TRY(declaration, ...) \
  SUBLET_TRY_IMPL(SUBLET_CONCAT(sublet_result_, __LINE__), declaration, __VA_ARGS__)
#define SUBLET_RETURN_IF_ERROR(...)                                \
  do {                                                             \
    if (auto sublet_status = (__VA_ARGS__); !sublet_status.ok()) { \
      return std::move(sublet_status).error();                     \
    }                                                              \
  } while (false)
