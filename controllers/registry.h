// The ordered list of controllers, and ControllerSet, which runs those of a role on shared
// informers and one pool of threads. Used by server/ only. Adding a controller: its file pair, and
// one line in registry.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "controllers/context.h"

namespace sublet::controllers {

enum class Runs { kEverywhere, kTenantOnly, kHostOnly };

struct ControllerEntry {
  const char* name;
  Runs runs;
  std::unique_ptr<Controller> (*make)(const Context&);
};

const std::vector<ControllerEntry>& AllControllers();

class ControllerSet {
 public:
  // `client` acts as a user that may do everything (system:kube-controller-manager). `disabled`
  // names entries to leave out. Nothing is started. Lifetime: `clock` outlives the set.
  ControllerSet(client::Client client, Settings settings, const Clock& clock = SystemClock(),
                const std::vector<std::string>& disabled = {}, int threads = 4);
  ~ControllerSet();  // Stop

  void Start();  // returns at once; reconciling begins when the informers have their first state
  // False when `deadline` passed first.
  bool WaitSynced(Deadline deadline);
  void Stop();  // idempotent; joins

  client::InformerFactory& informers() { return informers_; }

 private:
  const Settings settings_;
  client::InformerFactory informers_;
  client::EventRecorder events_;
  client::Manager manager_;
  std::vector<std::unique_ptr<Controller>> controllers_;
  bool stopped_ = false;
};

}  // namespace sublet::controllers
