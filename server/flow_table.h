// FlowTable: which priority and fairness objects a request's answer names. The two headers carry
// the uids of real objects; which request would fall under which of them is decided by the user
// alone. Threads: immutable after construction.
#pragma once

#include <map>
#include <string>

#include "apiserver/pipeline.h"
#include "apiserver/registry/catalog.h"
#include "storage/store.h"

namespace sublet::server {

class FlowTable {
 public:
  // Reads the uids of the objects that Bootstrap made; "" for one that is not there.
  FlowTable(const storage::Store& store, const apiserver::Catalog& catalog);
  const apiserver::FlowNames& Of(const apiserver::User& user) const;

 private:
  std::map<std::string, apiserver::FlowNames, std::less<>> flows_;  // by name of the FlowSchema
};

}  // namespace sublet::server
