// ObjectWriter: published values of one resource in one output form. Plain JSON is cut out of the
// published buffers; tables and other shapes are encoded here, once per call.
// Threads: a writer belongs to one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apiserver/handlers/negotiate.h"
#include "apiserver/registry/resource.h"
#include "apiserver/response.h"
#include "base/clock.h"
#include "storage/store.h"

namespace sublet::apiserver {

// Appends pieces of a body: literals (never copied), shared buffers and owned text.
class PieceSink {
 public:
  explicit PieceSink(std::vector<Body::Piece>& out) : out_(out) {}
  // `text` lives for ever (a literal).
  void Literal(std::string_view text) { out_.push_back({text, nullptr}); }
  void Shared(std::shared_ptr<const void> owner, std::string_view bytes) {
    out_.push_back({bytes, std::move(owner)});
  }
  void Own(std::string text);

 private:
  std::vector<Body::Piece>& out_;
};

class ObjectWriter {
 public:
  // `resource` and `form` outlive the writer.
  ObjectWriter(const Resource& resource, const OutputForm& form, WallTime now);

  // Whole objects with apiVersion and kind, in the form (never YAML or pretty: see respond.h).
  // A Table form gives a table of one row; `with_columns` is false for all but the first of a
  // watch.
  void Object(PieceSink& sink, const storage::ValuePtr& value, bool with_columns = true) const;
  // The same with another revision in the hole (what a watcher sees when an object stops matching).
  void ObjectAt(PieceSink& sink, const storage::ValuePtr& value, storage::Revision revision) const;
  // Whether Object writes the published bytes as they stand.
  bool IsVerbatim(const storage::Value& value) const {
    return form_.as == OutputForm::As::kObject && same_head_ && CanServeBytes(value);
  }
  // One item of a list, with the comma before it unless it is the first: without apiVersion and
  // kind for built-in kinds.
  void ListItem(PieceSink& sink, const storage::ValuePtr& value, bool first) const;

  // {"kind":"PodList",...,"items":[  and what closes it.
  std::string ListHead(storage::Revision revision, std::string_view continue_token,
                       std::int64_t remaining) const;
  std::string_view ListTail() const { return "]}"; }

  // A table row or the tree in this version; for callers that hold a tree.
  kube::Json TreeOf(const storage::Value& value) const;
  std::string EncodeTree(const kube::Json& tree, bool with_columns) const;

 private:
  void Head(PieceSink& sink) const;
  bool CanServeBytes(const storage::Value& value) const;
  void AppendRow(const kube::Json& tree, std::string_view metadata, std::string& out) const;
  void AppendColumns(std::string& out) const;
  std::string RowOf(const storage::Value& value) const;

  const Resource& resource_;
  const OutputForm& form_;
  WallTime now_;
  bool same_head_ = false;                   // stored apiVersion and kind are the served ones
  std::shared_ptr<const std::string> head_;  // {"apiVersion":"..","kind":".."
};

}  // namespace sublet::apiserver
