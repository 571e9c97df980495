#include "apiserver/handlers/object_writer.h"

#include <nlohmann/json.hpp>

#include "apiserver/registry/kind_ops.h"
#include "apiserver/registry/object_codec.h"

namespace sublet::apiserver {

void PieceSink::Own(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  const std::string_view view = *owner;
  out_.push_back({view, std::move(owner)});
}

ObjectWriter::ObjectWriter(const Resource& resource, const OutputForm& form, WallTime now)
    : resource_(resource), form_(form), now_(now) {
  same_head_ = resource_.type != nullptr &&
               resource_.type->StoredApiVersion() == resource_.ApiVersion() &&
               resource_.type->kind == resource_.kind_name();
  std::string head = "{\"apiVersion\":";
  kube::AppendJsonString(resource_.ApiVersion(), &head);
  head += ",\"kind\":";
  kube::AppendJsonString(resource_.kind_name(), &head);
  head_ = std::make_shared<const std::string>(std::move(head));
}

bool ObjectWriter::CanServeBytes(const storage::Value& value) const {
  return ServesStoredBytes(resource_, FactsOf(value));
}

void ObjectWriter::Head(PieceSink& sink) const { sink.Shared(head_, *head_); }

void ObjectWriter::Object(PieceSink& sink, const storage::ValuePtr& value,
                          bool with_columns) const {
  switch (form_.as) {
    case OutputForm::As::kPartial:
      sink.Literal(form_.meta_version == "v1"
                       ? "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\","
                         "\"metadata\":"
                       : "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/"
                         "v1beta1\",\"metadata\":");
      sink.Shared(value, MetadataBytes(*value));
      sink.Literal("}");
      return;
    case OutputForm::As::kTable: sink.Own(EncodeTree(TreeOf(*value), with_columns)); return;
    case OutputForm::As::kObject: break;
  }
  if (!CanServeBytes(*value)) {
    std::string text;
    kube::AppendJson(TreeOf(*value), &text);
    sink.Own(std::move(text));
  } else if (same_head_) {
    sink.Shared(value, value->bytes);
  } else {
    Head(sink);
    sink.Shared(value, RestAfterHead(*value));
  }
}

void ObjectWriter::ObjectAt(PieceSink& sink, const storage::ValuePtr& value,
                            storage::Revision revision) const {
  const std::string digits = std::to_string(revision);
  auto copy = std::make_shared<storage::Value>();
  copy->bytes = value->bytes;
  copy->attachment = value->attachment;
  copy->revision_offset = value->revision_offset;
  copy->revision_length = value->revision_length;
  if (value->revision_offset != storage::kNoHole) {
    copy->bytes.replace(value->revision_offset, value->revision_length, digits);
    copy->revision_length = static_cast<std::uint32_t>(digits.size());
  }
  Object(sink, copy, false);
}

void ObjectWriter::ListItem(PieceSink& sink, const storage::ValuePtr& value, bool first) const {
  const bool is_cut =
      form_.as == OutputForm::As::kObject && !resource_.kind->is_custom && CanServeBytes(*value);
  if (is_cut) {
    sink.Literal(first ? "{" : ",{");
    sink.Shared(value, RestAfterHead(*value).substr(1));
    return;
  }
  if (!first) {
    sink.Literal(",");
  }
  if (form_.as == OutputForm::As::kTable) {
    sink.Own(RowOf(*value));
    return;
  }
  if (form_.as == OutputForm::As::kPartial || resource_.kind->is_custom) {
    Object(sink, value);
    return;
  }
  auto tree = TreeOf(*value);
  tree.erase("apiVersion");
  tree.erase("kind");
  std::string text;
  kube::AppendJson(tree, &text);
  sink.Own(std::move(text));
}

std::string ObjectWriter::ListHead(storage::Revision revision, std::string_view continue_token,
                                   std::int64_t remaining) const {
  std::string out = "{\"kind\":";
  if (form_.as == OutputForm::As::kTable) {
    out += "\"Table\",\"apiVersion\":\"meta.k8s.io/" + form_.meta_version + "\"";
  } else if (form_.as == OutputForm::As::kPartial) {
    out +=
        "\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/" + form_.meta_version + "\"";
  } else {
    kube::AppendJsonString(resource_.kind->list_kind, &out);
    out += ",\"apiVersion\":";
    kube::AppendJsonString(resource_.ApiVersion(), &out);
  }
  out += ",\"metadata\":{\"resourceVersion\":\"" + std::to_string(revision) + "\"";
  if (!continue_token.empty()) {
    out += ",\"continue\":";
    kube::AppendJsonString(continue_token, &out);
    if (remaining > 0) {
      out += ",\"remainingItemCount\":" + std::to_string(remaining);
    }
  }
  if (continue_token.empty() && resource_.kind->is_custom && form_.as == OutputForm::As::kObject) {
    out += ",\"continue\":\"\"";
  }
  out += "},";
  if (form_.as == OutputForm::As::kTable) {
    AppendColumns(out);
    out += ",\"rows\":[";
  } else {
    out += "\"items\":[";
  }
  return out;
}

kube::Json ObjectWriter::TreeOf(const storage::Value& value) const {
  auto tree = ParseStored(value);
  FromStored(resource_, tree);
  return tree;
}

void ObjectWriter::AppendColumns(std::string& out) const {
  out += "\"columnDefinitions\":[";
  bool first = true;
  for (const auto& column : resource_.kind->strategy->Columns()) {
    out += first ? "{\"name\":" : ",{\"name\":";
    first = false;
    kube::AppendJsonString(column.name, &out);
    out += ",\"type\":";
    kube::AppendJsonString(column.type, &out);
    out += ",\"format\":";
    kube::AppendJsonString(column.format, &out);
    out += ",\"description\":";
    kube::AppendJsonString(column.description, &out);
    out += ",\"priority\":" + std::to_string(column.priority) + "}";
  }
  out += "]";
}

void ObjectWriter::AppendRow(const kube::Json& tree, std::string_view metadata,
                             std::string& out) const {
  const kube::Json cells = resource_.kind->strategy->Cells(tree, now_);
  out += "{\"cells\":";
  kube::AppendJson(cells, &out);
  if (const auto conditions = resource_.kind->strategy->RowConditions(tree);
      !conditions.is_null()) {
    out += ",\"conditions\":";
    kube::AppendJson(conditions, &out);
  }
  out += ",\"object\":";
  switch (form_.include) {
    case OutputForm::Include::kNone: out += "null"; break;
    case OutputForm::Include::kObject: kube::AppendJson(tree, &out); break;
    case OutputForm::Include::kMetadata:
      out += "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/" +
             form_.meta_version + "\",\"metadata\":";
      if (metadata.empty()) {
        kube::AppendJson(tree.at("metadata"), &out);
      } else {
        out += metadata;
      }
      out += "}";
  }
  out += "}";
}

std::string ObjectWriter::RowOf(const storage::Value& value) const {
  std::string out;
  AppendRow(TreeOf(value), MetadataBytes(value), out);
  return out;
}

std::string ObjectWriter::EncodeTree(const kube::Json& tree, bool with_columns) const {
  std::string out;
  if (form_.as == OutputForm::As::kObject) {
    kube::AppendJson(tree, &out);
    return out;
  }
  if (form_.as == OutputForm::As::kPartial) {
    out = "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/" + form_.meta_version +
          "\",\"metadata\":";
    kube::AppendJson(tree.at("metadata"), &out);
    out += "}";
    return out;
  }
  out = "{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/" + form_.meta_version +
        "\",\"metadata\":{\"resourceVersion\":";
  kube::AppendJsonString(kube::FindString(tree, {"metadata", "resourceVersion"}), &out);
  out += "},";
  if (with_columns) {
    AppendColumns(out);
  } else {
    out += "\"columnDefinitions\":null";
  }
  out += ",\"rows\":[";
  AppendRow(tree, {}, out);
  out += "]}";
  return out;
}

}  // namespace sublet::apiserver
