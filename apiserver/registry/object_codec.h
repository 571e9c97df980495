// Objects as storage holds them: the bytes every reader gets, and the facts beside them that spare
// readers from parsing.
//
// Layout of the bytes (compact JSON, always in this order):
//   {"apiVersion":"apps/v1","kind":"Deployment","metadata":{...,"resourceVersion":"",...},<rest>}
// so that list items without apiVersion and kind, other apiVersions of the same shape, and
// PartialObjectMetadata are cut out of the same buffer instead of being encoded again. The digits
// of resourceVersion are put into the hole by storage. Threads: any; values are immutable once
// published.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/registry/resource.h"
#include "storage/store.h"

namespace sublet::apiserver {

// What filters and metadata answers need of one version of one object.
struct ObjectFacts final : storage::Attachment {
  std::uint32_t head_bytes = 0;      // length of {"apiVersion":"..","kind":".." without the comma
  std::uint32_t metadata_begin = 0;  // of the metadata object, '{'
  std::uint32_t metadata_end = 0;    // exclusive, with an empty hole
  std::string uid;
  std::string labels;  // key '\0' value '\0' ..., ascending by key
  // Values of StoredType::fields; empty for custom resources, whose selectable fields may change
  // while the bytes stay (FieldValue reads them on demand).
  std::vector<std::string> fields;
  std::uint32_t schema_id = 0;  // StoredType::schema_id when it was encoded; 0 after a restart
  bool deleting = false;        // deletionTimestamp is set
  bool has_finalizers = false;

  // The value of label `key`; nullptr data when absent.
  bool FindLabel(std::string_view key, std::string_view* value) const;
};

struct EncodedObject {
  std::string bytes;
  std::uint32_t revision_offset = storage::kNoHole;
  std::shared_ptr<const ObjectFacts> facts;
};

// Encodes `object` (apiVersion, kind and metadata are objects and strings; the caller has checked)
// with an empty hole. metadata.resourceVersion of `object` is left out.
EncodedObject EncodeObject(const kube::Json& object, const StoredType& type);

// The facts of bytes read back from storage, in one scan. `type` may be null for keys of no known
// kind: facts without fields. Never fails: bytes in another shape give facts with zero offsets.
std::shared_ptr<const ObjectFacts> ScanFacts(std::string_view bytes, const StoredType* type);

// The facts of a published value. Precondition: the value was made by EncodeObject or ScanFacts.
const ObjectFacts& FactsOf(const storage::Value& value);

// Parts of published bytes.
std::string_view RestAfterHead(const storage::Value& value);  // ,"metadata":{...},...}
std::string_view MetadataBytes(const storage::Value& value);  // {...}

// The scalar at dotted `path` ("spec.color") as field selectors compare it; "" when absent.
std::string FieldValue(const storage::Value& value, std::string_view path);

// Parses published bytes; they are ours, so this cannot fail.
kube::Json ParseStored(const storage::Value& value);

}  // namespace sublet::apiserver
