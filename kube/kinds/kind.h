// Kind: everything the API server needs to know about one kind at one version, as data plus a small
// Strategy where the kind has logic. Built-in kinds come from registry.h; a CRD makes the same
// value at run time. Immutable after construction; threads: any.
//
// The walk of a write (write_path.h does the middle part):
//   decode -> NormalizeTyped (kube/typed.h) -> Strategy::Default -> mutating admission
//   -> BeforeCreate / BeforeUpdate (metadata, Prepare*, Validate*) -> validating admission -> store
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kube/field_error.h"
#include "kube/json.h"
#include "kube/names.h"
#include "kube/schema/schema.h"
#include "kube/validation_names.h"

namespace sublet::kube {

struct Column {
  std::string name;
  std::string type;    // integer, number, string, boolean, date
  std::string format;  // "name" marks the name column
  std::string description;
  int priority = 0;  // 0 = always shown, 1 = only with -o wide
};

struct Subresource {
  std::string name;       // "status"
  GroupVersionKind kind;  // of the bodies it speaks: autoscaling/v1 Scale for "scale"
  std::vector<std::string> verbs;
};

// Where the /scale subresource finds its numbers; JSON paths of object keys.
struct ScalePaths {
  std::vector<std::string> spec_replicas = {"spec", "replicas"};
  std::vector<std::string> status_replicas = {"status", "replicas"};
  // Built-ins point at a LabelSelector object (or a map for RC), CRDs at a string; {} = none.
  std::vector<std::string> selector = {"spec", "selector"};
};

// Who writes, when, and where to.
struct WriteContext {
  WallTime now;
  std::string namespace_name;  // of the URL; "" for cluster scope
  std::string user;
  std::string user_uid;
  std::vector<std::string> groups;
  bool dry_run = false;
};

struct Kind;

// A kind's own logic. Every function is pure apart from its arguments; the generic implementations
// do what Kubernetes does for a kind without special rules.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Kubernetes' defaulting functions, on an object of the kind's type. Idempotent. Runs after
  // decoding and after every patch.
  virtual void Default(Json* object) const;

  // Clears what a client may not set and sets what only the server does. The generic part (status
  // cleared, generation) is already done.
  virtual void PrepareCreate(const WriteContext& context, Json* object) const;
  virtual void PrepareUpdate(const WriteContext& context, const Json& old, Json* object) const;
  // For the status subresource. Generic: status and metadata are what was sent, everything else
  // comes from `old`.
  virtual void PrepareStatusUpdate(const WriteContext& context, const Json& old,
                                   Json* object) const;

  // Metadata is already checked.
  virtual void ValidateCreate(const Json& object, FieldErrors* errors) const;
  virtual void ValidateUpdate(const Json& object, const Json& old, FieldErrors* errors) const;
  virtual void ValidateStatusUpdate(const Json& object, const Json& old, FieldErrors* errors) const;
  // Texts for Warning headers; `old` is nullptr on create.
  virtual void Warn(const Json& object, const Json* old, std::vector<std::string>* warnings) const;

  // The other subresources that write the object itself ("resize", "ephemeralcontainers",
  // "approval", "finalize"): puts together what is stored from `old` and what was sent, and checks
  // it. Generic: as an update of the whole object.
  virtual void PrepareSubresource(std::string_view subresource, const WriteContext& context,
                                  const Json& old, Json* object) const;
  virtual void ValidateSubresource(std::string_view subresource, const Json& object,
                                   const Json& old, FieldErrors* errors) const;

  // The columns of a Table and the cells of one row, in the same order.
  virtual std::vector<Column> Columns() const;
  virtual Json Cells(const Json& object, WallTime now) const;
  // TableRow conditions, null when none (finished pods).
  virtual Json RowConditions(const Json& object) const;

  // Field selectors beside metadata.name and metadata.namespace.
  virtual std::vector<std::string_view> SelectableFields() const;
  // The text of one of them; "" when the object has none.
  virtual std::string SelectableValue(const Json& object, std::string_view field) const;

  // Seconds between a graceful delete and the removal; nullopt: the kind is removed at once.
  virtual std::optional<std::int64_t> GracePeriod(const Json& object,
                                                  std::optional<std::int64_t> requested) const;

  // Kinds that several versions store as one (Event, HorizontalPodAutoscaler): between this version
  // and the stored one, in place. Generic: nothing to do.
  virtual void ToStorage(Json* object) const;
  virtual void FromStorage(Json* object) const;
};

struct Kind {
  GroupVersionKind gvk;
  std::string list_kind;  // "PodList"
  std::string resource;   // "pods"
  std::string singular;
  bool namespaced = true;
  std::vector<std::string> verbs;
  std::vector<std::string> short_names;
  std::vector<std::string> categories;
  std::string storage_version_hash;
  std::vector<Subresource> subresources;

  // Where objects are kept; several versions of a kind name the same. stored_as is the version in
  // which they are kept.
  GroupResource storage;
  GroupVersionKind stored_as;

  schema::Type type;
  // Keeps a CRD's tables alive; empty for built-ins.
  std::shared_ptr<const void> type_owner;

  // What metadata.name may be.
  Problems (*name_rule)(std::string_view) = &IsDns1123Subdomain;
  bool has_status = false;                    // /status exists, so main writes ignore status
  bool keeps_status_on_create = false;        // Node: who registers one brings its status
  bool has_generation = false;                // metadata.generation counts spec changes
  bool generation_starts_absent = false;      // CSIDriver
  bool annotations_raise_generation = false;  // Deployment
  bool allow_unconditional_update = true;
  bool allow_create_on_update = false;
  bool is_custom = false;    // made by a CRD: answers carry kind per list item, no protobuf
  bool has_metadata = true;  // false for reviews (SubjectAccessReview, ...)
  std::string default_propagation = "Background";  // when a delete names no policy
  std::optional<ScalePaths> scale;
  std::shared_ptr<const Strategy> strategy = std::make_shared<Strategy>();

  std::string ApiVersion() const { return gvk.ApiVersion(); }
  // Which group is named when an object is invalid: that of the stored form.
  const std::string& error_group() const { return is_custom ? gvk.group : stored_as.group; }
  ResourceName resource_name() const { return {gvk.group, resource}; }
  bool HasVerb(std::string_view verb) const;
  const Subresource* FindSubresource(std::string_view name) const;
};
using KindPtr = std::shared_ptr<const Kind>;

}  // namespace sublet::kube
