// Quantity: Kubernetes' amounts of resources ("100m", "1.5Gi", "2e3") as exact numbers with the
// notation they came in. A value, no I/O.
// Source: k8s.io/apimachinery pkg/api/resource.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sublet::kube {

inline constexpr std::int64_t kKiB = 1024;
inline constexpr std::int64_t kMiB = 1024 * kKiB;
inline constexpr std::int64_t kGiB = 1024 * kMiB;

class Quantity {
 public:
  enum class Format : std::uint8_t { kDecimalSi, kBinarySi, kDecimalExponent };

  Quantity() = default;
  // A whole number of units; a number of thousandths.
  static Quantity FromInt(std::int64_t value, Format format = Format::kDecimalSi);
  static Quantity FromMilli(std::int64_t milli, Format format = Format::kDecimalSi);
  // Fractions finer than a billionth are rounded away from zero.
  // Errors: BadRequest with Kubernetes' text ("quantities must match the regular expression ...").
  // Differs: amounts beyond 1.7e29 saturate there; Kubernetes computes them without bound.
  static Result<Quantity> Parse(std::string_view text);
  // Parses, or returns zero for what is no quantity: for fields that validation has passed.
  static Quantity ParseOrZero(std::string_view text);

  // The canonical spelling: what the API returns ("0.5" becomes "500m").
  std::string Text() const;

  // Rounded away from zero. Differs: saturating at the ends of int64, where Kubernetes wraps
  // around.
  std::int64_t Value() const;
  std::int64_t MilliValue() const;
  double AsDouble() const;

  bool IsZero() const { return nanos_ == 0; }
  int Sign() const { return nanos_ == 0 ? 0 : nanos_ < 0 ? -1 : 1; }
  // True when the amount is a whole number of units.
  bool IsInteger() const;
  Format format() const { return format_; }

  // Zero takes over the notation of what is added, as Kubernetes' sums do. Saturating.
  Quantity& operator+=(const Quantity& other);
  Quantity& operator-=(const Quantity& other);
  friend Quantity operator+(Quantity a, const Quantity& b) { return a += b; }
  friend Quantity operator-(Quantity a, const Quantity& b) { return a -= b; }
  // Compares amounts; the notation does not count.
  friend bool operator==(const Quantity& a, const Quantity& b) { return a.nanos_ == b.nanos_; }
  friend std::strong_ordering operator<=>(const Quantity& a, const Quantity& b) {
    return a.nanos_ < b.nanos_   ? std::strong_ordering::less
           : a.nanos_ > b.nanos_ ? std::strong_ordering::greater
                                 : std::strong_ordering::equal;
  }

 private:
  __extension__ using Int128 = __int128;

  Int128 nanos_ = 0;
  Format format_ = Format::kDecimalSi;
  // The text as it came, where Kubernetes keeps it ("1.500", "+1"); "" otherwise.
  std::string text_;
};

}  // namespace sublet::kube
