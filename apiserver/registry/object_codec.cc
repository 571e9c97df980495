#include "apiserver/registry/object_codec.h"

#include <nlohmann/json.hpp>

#include "apiserver/registry/json_scan.h"
#include "base/check.h"

namespace sublet::apiserver {
namespace {

constexpr kube::JsonLimits kStoredLimits{.bytes_max = 64u << 20, .depth_max = 1024};

// The part of `path` up to the first '.', and the rest.
std::pair<std::string_view, std::string_view> SplitPath(std::string_view path) {
  const auto dot = path.find('.');
  if (dot == std::string_view::npos) {
    return {path, {}};
  }
  return {path.substr(0, dot), path.substr(dot + 1)};
}

std::string FieldOfText(std::string_view text, std::string_view path) {
  while (!path.empty()) {
    const auto [step, rest] = SplitPath(path);
    const auto span = FindMember(text, step);
    if (!span) {
      return "";
    }
    text = text.substr(span->begin, span->end - span->begin);
    path = rest;
  }
  if (!text.empty() && (text.front() == '{' || text.front() == '[')) {
    return "";
  }
  return ScalarText(text);
}

void FillFields(ObjectFacts& facts, const StoredType& type, const kube::Json& object) {
  facts.fields.resize(type.fields.size());
  for (std::size_t i = 0; i < type.fields.size(); ++i) {
    facts.fields[i] = type.strategy->SelectableValue(object, type.fields[i]);
  }
}

void FillFromMetadata(ObjectFacts& facts, const kube::Json& metadata) {
  if (const auto it = metadata.find("uid"); it != metadata.end() && it->is_string()) {
    facts.uid = it->get_ref<const std::string&>();
  }
  if (const auto it = metadata.find("labels"); it != metadata.end() && it->is_object()) {
    for (auto label = it->begin(); label != it->end(); ++label) {
      facts.labels += label.key();
      facts.labels += '\0';
      if (label->is_string()) {
        facts.labels += label->get_ref<const std::string&>();
      }
      facts.labels += '\0';
    }
  }
  if (const auto it = metadata.find("deletionTimestamp"); it != metadata.end()) {
    facts.deleting = it->is_string();
  }
  if (const auto it = metadata.find("finalizers"); it != metadata.end() && it->is_array()) {
    facts.has_finalizers = !it->empty();
  }
}

constexpr std::string_view kResourceVersion = "resourceVersion";

// Writes metadata with an empty resourceVersion in key order; returns the hole's offset.
std::uint32_t AppendMetadata(const kube::Json& metadata, std::string& out) {
  std::uint32_t hole = storage::kNoHole;
  bool first = true;
  const auto separate = [&] {
    if (!first) {
      out += ',';
    }
    first = false;
  };
  const auto write_hole = [&] {
    separate();
    out += "\"resourceVersion\":\"";
    hole = static_cast<std::uint32_t>(out.size());
    out += '"';
  };
  out += '{';
  for (auto it = metadata.begin(); it != metadata.end(); ++it) {
    if (it.key() == kResourceVersion) {
      continue;
    }
    if (hole == storage::kNoHole && it.key() > kResourceVersion) {
      write_hole();
    }
    separate();
    kube::AppendJsonString(it.key(), &out);
    out += ':';
    kube::AppendJson(it.value(), &out);
  }
  if (hole == storage::kNoHole) {
    write_hole();
  }
  out += '}';
  return hole;
}

}  // namespace

bool ObjectFacts::FindLabel(std::string_view key, std::string_view* value) const {
  std::string_view rest = labels;
  while (!rest.empty()) {
    const auto key_end = rest.find('\0');
    const auto value_end = rest.find('\0', key_end + 1);
    if (rest.substr(0, key_end) == key) {
      *value = rest.substr(key_end + 1, value_end - key_end - 1);
      return true;
    }
    rest.remove_prefix(value_end + 1);
  }
  return false;
}

EncodedObject EncodeObject(const kube::Json& object, const StoredType& type) {
  EncodedObject encoded;
  auto facts = std::make_shared<ObjectFacts>();
  std::string& out = encoded.bytes;
  out.reserve(2048);
  out += "{\"apiVersion\":";
  kube::AppendJsonString(object.at("apiVersion").get_ref<const std::string&>(), &out);
  out += ",\"kind\":";
  kube::AppendJsonString(object.at("kind").get_ref<const std::string&>(), &out);
  facts->head_bytes = static_cast<std::uint32_t>(out.size());
  out += ",\"metadata\":";
  facts->metadata_begin = static_cast<std::uint32_t>(out.size());
  const kube::Json& metadata = object.at("metadata");
  encoded.revision_offset = AppendMetadata(metadata, out);
  facts->metadata_end = static_cast<std::uint32_t>(out.size());
  for (auto it = object.begin(); it != object.end(); ++it) {
    if (it.key() == "apiVersion" || it.key() == "kind" || it.key() == "metadata") {
      continue;
    }
    out += ',';
    kube::AppendJsonString(it.key(), &out);
    out += ':';
    kube::AppendJson(it.value(), &out);
  }
  out += '}';
  FillFromMetadata(*facts, metadata);
  facts->schema_id = type.schema_id;
  if (!type.is_custom) {
    FillFields(*facts, type, object);
  }
  encoded.facts = std::move(facts);
  return encoded;
}

std::shared_ptr<const ObjectFacts> ScanFacts(std::string_view bytes, const StoredType* type) {
  std::size_t metadata_end = 0;
  auto facts = std::make_shared<ObjectFacts>();
  if (bytes.empty() || bytes.front() != '{') {
    return facts;
  }
  ForEachMember(bytes, [&](std::string_view name, MemberSpan span) {
    if (name == "kind") {
      facts->head_bytes = static_cast<std::uint32_t>(span.end);
      return true;
    }
    if (name != "metadata") {
      return name == "apiVersion";
    }
    facts->metadata_begin = static_cast<std::uint32_t>(span.begin);
    metadata_end = span.end;
    return false;
  });
  if (metadata_end == 0) {
    return facts;
  }
  const auto metadata = bytes.substr(facts->metadata_begin, metadata_end - facts->metadata_begin);
  std::size_t revision_bytes = 0;
  ForEachMember(metadata, [&](std::string_view name, MemberSpan span) {
    const auto value = metadata.substr(span.begin, span.end - span.begin);
    if (name == "uid") {
      facts->uid = ScalarText(value);
    } else if (name == kResourceVersion) {
      revision_bytes = value.size() >= 2 ? value.size() - 2 : 0;
    } else if (name == "labels") {
      ForEachMember(value, [&](std::string_view label, MemberSpan at) {
        facts->labels += label;
        facts->labels += '\0';
        facts->labels += ScalarText(value.substr(at.begin, at.end - at.begin));
        facts->labels += '\0';
        return true;
      });
    } else if (name == "deletionTimestamp") {
      facts->deleting = value.front() == '"';
    } else if (name == "finalizers") {
      facts->has_finalizers = value.size() > 2;
    }
    return true;
  });
  facts->metadata_end = static_cast<std::uint32_t>(metadata_end - revision_bytes);
  if (type != nullptr && !type->is_custom && !type->fields.empty()) {
    if (const auto object = kube::ParseJson(bytes, kStoredLimits); object.ok()) {
      FillFields(*facts, *type, *object);
    }
  }
  return facts;
}

const ObjectFacts& FactsOf(const storage::Value& value) {
  SUBLET_CHECK(value.attachment != nullptr);
  return static_cast<const ObjectFacts&>(*value.attachment);
}

std::string_view RestAfterHead(const storage::Value& value) {
  return std::string_view(value.bytes).substr(FactsOf(value).head_bytes);
}

std::string_view MetadataBytes(const storage::Value& value) {
  const ObjectFacts& facts = FactsOf(value);
  return std::string_view(value.bytes)
      .substr(facts.metadata_begin,
              facts.metadata_end + value.revision_length - facts.metadata_begin);
}

std::string FieldValue(const storage::Value& value, std::string_view path) {
  return FieldOfText(value.bytes, path);
}

kube::Json ParseStored(const storage::Value& value) {
  auto parsed = kube::ParseJson(value.bytes, kStoredLimits);
  SUBLET_CHECK(parsed.ok());
  return std::move(*parsed);
}

}  // namespace sublet::apiserver
