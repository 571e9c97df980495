#include "apiserver/handlers/respond.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/json.h"
#include "kube/status_json.h"

namespace sublet::apiserver {
namespace {

// Runes of all warnings of one answer together, and of each when they are more.
constexpr std::size_t kWarningBytesTotal = 4096;
constexpr std::size_t kWarningBytesEach = 256;

std::string WarningHeader(std::string_view text) {
  std::string out = "299 - \"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) {
      out += c;
    } else {
      out += ' ';
    }
  }
  out += '"';
  return out;
}

// Cuts at a UTF-8 boundary.
std::string_view Cut(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) {
    return text;
  }
  while (bytes_max > 0 && (static_cast<unsigned char>(text[bytes_max]) & 0xc0) == 0x80) {
    --bytes_max;
  }
  return text.substr(0, bytes_max);
}

// YAML and indented JSON are made from the compact text: rare, so they may cost a parse.
void Reformat(const OutputForm& form, std::string text, Response& response) {
  if (form.media == MediaType::kJson && !form.pretty) {
    response.body.Append(std::move(text));
    return;
  }
  auto tree = kube::ParseJson(text, {.bytes_max = 256u << 20, .depth_max = 1024});
  if (!tree.ok()) {
    response.body.Append(std::move(text));
    return;
  }
  if (form.media == MediaType::kYaml) {
    response.content_type = "application/yaml";
    response.body.Append(kube::ToYaml(*tree));
  } else {
    response.body.Append(kube::DumpPretty(*tree) + "\n");
  }
}

}  // namespace

void AddWarnings(const Call& call, Response& response) {
  std::size_t total = 0;
  std::vector<std::string_view> seen;
  for (const auto& text : call.request->warnings) {
    total += text.size();
  }
  const std::size_t each = total > kWarningBytesTotal ? kWarningBytesEach : kWarningBytesTotal;
  std::size_t left = kWarningBytesTotal;
  for (const auto& text : call.request->warnings) {
    if (std::find(seen.begin(), seen.end(), text) != seen.end()) {
      continue;
    }
    seen.push_back(text);
    const auto cut = Cut(text, each);
    if (cut.size() > left) {
      break;
    }
    left -= cut.size();
    response.headers.emplace_back("Warning", WarningHeader(cut));
  }
}

void SendError(Call& call, const Status& status, std::string_view continue_token) {
  Response response;
  response.code = status.code();
  AddWarnings(call, response);
  if (status.details().retry_after_seconds > 0) {
    response.headers.emplace_back("Retry-After",
                                  std::to_string(status.details().retry_after_seconds));
  }
  auto tree = kube::StatusToJson(status);
  if (!continue_token.empty()) {
    tree["metadata"]["continue"] = std::string(continue_token);
  }
  Reformat(call.form, kube::Dump(tree), response);
  call.responder->Send(std::move(response));
}

void SendValue(Call& call, int code, const storage::ValuePtr& value) {
  std::vector<Body::Piece> pieces;
  PieceSink sink(pieces);
  ObjectWriter(*call.resource, call.form, call.context->clock->Now()).Object(sink, value);
  SendPieces(call, code, std::move(pieces));
}

void SendTree(Call& call, int code, const kube::Json& tree) {
  const ObjectWriter writer(*call.resource, call.form, call.context->clock->Now());
  Response response;
  response.code = code;
  AddWarnings(call, response);
  Reformat(call.form, writer.EncodeTree(tree, true), response);
  call.responder->Send(std::move(response));
}

void SendDeleted(Call& call, std::string_view name, std::string_view uid) {
  Response response;
  AddWarnings(call, response);
  Reformat(call.form, kube::Dump(kube::SuccessStatus(call.resource->Name(), name, uid)), response);
  call.responder->Send(std::move(response));
}

void SendPieces(Call& call, int code, std::vector<Body::Piece> pieces) {
  Response response;
  response.code = code;
  AddWarnings(call, response);
  if (call.form.media == MediaType::kJson && !call.form.pretty) {
    response.body = Body(std::move(pieces));
  } else {
    std::string text;
    for (const auto& piece : pieces) {
      text += piece.bytes;
    }
    Reformat(call.form, std::move(text), response);
  }
  call.responder->Send(std::move(response));
}

void SendText(Call& call, int code, std::string content_type, std::string text) {
  Response response;
  response.code = code;
  response.content_type = std::move(content_type);
  AddWarnings(call, response);
  response.body.Append(std::move(text));
  call.responder->Send(std::move(response));
}

}  // namespace sublet::apiserver
