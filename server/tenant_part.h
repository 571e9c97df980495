// TenantPart: what makes `sublet serve --role=tenant` a tenant: the syncer towards the host and the
// Secret on the host through which the CLI finds its way in.
// Threads: Start returns at once; "tenant-access" publishes; the syncer has its own.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "client/kubeconfig.h"
#include "config/tenant_config.h"
#include "storage/store.h"
#include "syncer/syncer.h"

namespace sublet::server {

// The syncer's facts in the tenant's file, outside its revisions.
class StoreFacts final : public syncer::LocalFacts {
 public:
  explicit StoreFacts(storage::Store& store) : store_(store) {}
  Result<void> Put(
      const std::vector<std::pair<std::string, std::optional<std::string>>>& entries) override {
    return store_.PutLocal(entries);
  }
  Result<std::vector<std::pair<std::string, std::string>>> List(std::string_view prefix) override {
    return store_.ListLocal(prefix);
  }

 private:
  storage::Store& store_;
};

// The administrator's way in.
struct AdminAccess {
  std::string ca_pem;
  std::string certificate_pem;
  std::string key_pem;
  std::string kubeconfig;  // a whole one, server = the tenant's Service
};

struct TenantPartOptions {
  std::string tenant;
  std::string host_namespace;
  config::TenantConfig config;
  client::Client virtual_client;  // in process, as the syncer's user
  client::Connection host;
  AdminAccess access;
};

// What the configuration says about synchronisation. Pure.
syncer::SyncConfig MakeSyncConfig(const config::TenantConfig& config);

class TenantPart {
 public:
  // Errors: BadRequest (the connection to the host is unusable). store and clock outlive the part.
  static Result<std::unique_ptr<TenantPart>> Make(TenantPartOptions options, storage::Store& store,
                                                  const Clock& clock);
  ~TenantPart();

  void Start();
  void Stop();  // idempotent; joins
  syncer::Syncer& syncer() { return *syncer_; }

 private:
  TenantPart(TenantPartOptions options, client::Client host_client, storage::Store& store,
             const Clock& clock);
  // Writes Secret sublet-NAME until it stands there.
  void PublishAccess();
  Result<void> WriteAccess();

  const TenantPartOptions options_;
  const client::Client host_client_;
  StoreFacts facts_;
  std::unique_ptr<syncer::Syncer> syncer_;
  Mutex mutex_;
  CondVar stopping_;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::thread publisher_;
};

}  // namespace sublet::server
