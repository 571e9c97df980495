// FieldErrors: what validation finds wrong, field by field, in Kubernetes' words; becomes the
// causes of an Invalid status. FieldPath builds "spec.containers[0].name" without allocating until
// an error needs the text.
// Source: k8s.io/apimachinery pkg/util/validation/field.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kube/json.h"

namespace sublet::kube {

// A step of a path on the stack; the parent must outlive it.
class FieldPath {
 public:
  explicit FieldPath(std::string_view name) : name_(name) {}
  FieldPath Child(std::string_view name) const { return FieldPath(this, name, -1, false); }
  FieldPath Index(std::size_t index) const {
    return FieldPath(this, {}, static_cast<std::int64_t>(index), false);
  }
  FieldPath Key(std::string_view key) const { return FieldPath(this, key, -1, true); }
  std::string Text() const;

 private:
  FieldPath(const FieldPath* parent, std::string_view name, std::int64_t index, bool is_key)
      : parent_(parent), name_(name), index_(index), is_key_(is_key) {}
  void AppendTo(std::string* out) const;

  const FieldPath* parent_ = nullptr;
  std::string_view name_;
  std::int64_t index_ = -1;
  bool is_key_ = false;
};

class FieldErrors {
 public:
  // `value` is shown as Go shows it: strings quoted, everything else as JSON.
  void Invalid(std::string field, const Json& value, std::string_view detail);
  void InvalidEach(const FieldPath& field, const Json& value,
                   const std::vector<std::string>& details);
  void Required(std::string field, std::string_view detail = "");
  void Forbidden(std::string field, std::string_view detail);
  void Duplicate(std::string field, const Json& value);
  void NotFound(std::string field, const Json& value);
  void NotSupported(std::string field, const Json& value,
                    const std::vector<std::string_view>& supported);
  void TooLong(std::string field, int bytes_max);
  void TooMany(std::string field, std::int64_t actual, std::int64_t max);
  void TypeInvalid(std::string field, const Json& value, std::string_view detail);

  // The same by path.
  void Invalid(const FieldPath& field, const Json& value, std::string_view detail) {
    Invalid(field.Text(), value, detail);
  }
  void Required(const FieldPath& field, std::string_view detail = "") {
    Required(field.Text(), detail);
  }
  void Forbidden(const FieldPath& field, std::string_view detail) {
    Forbidden(field.Text(), detail);
  }
  void Duplicate(const FieldPath& field, const Json& value) { Duplicate(field.Text(), value); }
  void NotFound(const FieldPath& field, const Json& value) { NotFound(field.Text(), value); }
  void NotSupported(const FieldPath& field, const Json& value,
                    const std::vector<std::string_view>& supported) {
    NotSupported(field.Text(), value, supported);
  }
  void TooLong(const FieldPath& field, int bytes_max) { TooLong(field.Text(), bytes_max); }
  void TooMany(const FieldPath& field, std::int64_t actual, std::int64_t max) {
    TooMany(field.Text(), actual, max);
  }
  // The value is shown as given: where Kubernetes prints its own Go structures.
  void InvalidShown(const FieldPath& field, std::string_view shown, std::string_view detail);
  void NotSupportedShown(const FieldPath& field, std::string_view shown,
                         const std::vector<std::string_view>& supported);
  void DuplicateShown(const FieldPath& field, std::string_view shown);
  void Add(StatusCause cause) { causes_.push_back(std::move(cause)); }

  bool empty() const { return causes_.empty(); }
  std::size_t size() const { return causes_.size(); }
  const std::vector<StatusCause>& causes() const { return causes_; }
  std::vector<StatusCause> Take() { return std::move(causes_); }
  // "field: message", or "[a: x, b: y]" for several.
  std::string Aggregate() const;

 private:
  std::vector<StatusCause> causes_;
};

// `text` between double quotes with Go's %q escapes.
std::string GoQuote(std::string_view text);
std::string Join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace sublet::kube
