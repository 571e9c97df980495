// DefinitionController: makes custom resources appear and disappear. It follows the stored
// CustomResourceDefinitions, puts what they serve into the catalog, writes their conditions, and
// empties them when they are deleted.
//
// The order for a new one: names checked, schemas compiled, resources in the catalog, then
// Established=True; so whoever sees the condition can use the kind. Threads: Start loads what is
// stored on the caller's thread, then the thread "crd" follows changes; Stop joins it. Source:
// k8s.io/apiextensions-apiserver pkg/controller/{status,establish,finalizer,apiapproval}.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "apiserver/handlers/api_context.h"
#include "base/mutex.h"

namespace sublet::apiserver {

class DefinitionController {
 public:
  // `context` outlives the controller.
  explicit DefinitionController(const ApiContext* context);
  ~DefinitionController();

  // Serves every stored definition whose names are accepted, then begins to follow changes.
  // Errors: the store's.
  Result<void> Start();
  void Stop();

 private:
  // What the catalog holds of one definition.
  struct Installed {
    std::string uid;
    std::string fingerprint;  // generation, accepted names, deletion
    std::string group;
    kube::Json names;  // the accepted ones; null while none are
  };

  void Run();
  Result<void> Subscribe();
  void HandleAll();
  void Handle(const storage::ValuePtr& value);
  void Remove(const std::string& name);
  bool Install(const kube::Json& definition);
  kube::Json DesiredStatus(const kube::Json& definition) const;
  std::string NameConflict(const kube::Json& definition, std::string* reason) const;
  void WriteStatus(const kube::Json& definition);
  bool DeleteInstances(const kube::Json& definition);
  void FinishDeletion(const std::string& name);

  const ApiContext* const context_;
  const std::string prefix_;
  std::map<std::string, Installed> installed_;  // the crd thread's own after Start
  std::set<std::string> terminating_;
  bool served_changed_ = false;  // the catalog, since the APIServices were last looked at
  std::unique_ptr<storage::Subscription> subscription_;
  std::uint32_t next_schema_id_ = 1;

  struct Signal;
  std::shared_ptr<Signal> signal_;
  std::thread thread_;
};

}  // namespace sublet::apiserver
