// SchemaPool: owns the nodes of one compiled schema and keeps equal ones once. Private to crd/.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "apiserver/crd/schema_node.h"
#include "apiserver/crd/schema_validator.h"

namespace sublet::apiserver {

class SchemaPool {
 public:
  const SchemaNode* Intern(std::unique_ptr<SchemaNode> node);
  // No more nodes will come: forgets what found equal ones.
  void Seal() {
    index_ = {};
    nodes_.shrink_to_fit();
  }
  std::size_t size() const { return nodes_.size(); }

 private:
  std::vector<std::unique_ptr<SchemaNode>> nodes_;
  std::unordered_map<std::string, const SchemaNode*> index_;
};

struct SchemaValidator::Pool : SchemaPool {};

}  // namespace sublet::apiserver
