// Selection: the label and field selector of a list, watch or deletecollection, judged against the
// facts beside an object's bytes.
// Threads: immutable after Parse; Matches from any thread.
#pragma once

#include <string>
#include <string_view>

#include "apiserver/registry/object_codec.h"
#include "apiserver/registry/resource.h"
#include "base/result.h"
#include "kube/field_selector.h"
#include "kube/label_selector.h"

namespace sublet::apiserver {

class Selection {
 public:
  Selection() = default;  // matches everything
  // Errors: BadRequest with Kubernetes' text (malformed selector, field the kind does not offer).
  static Result<Selection> Parse(const Resource& resource, std::string_view label_selector,
                                 std::string_view field_selector);

  bool empty() const { return labels_.empty() && fields_.empty(); }
  // `key` is the storage key of the value.
  bool Matches(std::string_view key, const storage::Value& value) const;
  // The only name or namespace that can match; "" when any can.
  std::string_view single_name() const;
  std::string_view single_namespace() const;

 private:
  std::string_view Field(std::string_view field, std::string_view key, const storage::Value& value,
                         std::string& scratch) const;

  kube::LabelSelector labels_;
  kube::FieldSelector fields_;
  std::shared_ptr<const StoredType> type_;
};

}  // namespace sublet::apiserver
