// Services named in networking.replicateServices: a tenant's Service that appears on the host under
// a name of the administrator's choice (toHost), and a host Service that appears in the tenant
// (fromHost). Neither is a twin: the ordinary Service of the tenant, if there is one, has its own.
// Threads: as KindSyncer.
#pragma once

#include <map>

#include "syncer/translated_kind.h"

namespace sublet::syncer {

// "web: shop" on the host selects the tenant's pods as the tenant's Service does.
class ServiceToHost final : public TranslatedKind {
 public:
  explicit ServiceToHost(SyncContext& context);

  client::ObjectPtr Virtual(const kube::ObjectKey& key) const override;
  Result<client::Outcome> SyncToHost(const kube::Json& virtual_service) override;
  Result<client::Outcome> Sync(const kube::Json& virtual_service,
                               const kube::Json& host_service) override;

 protected:
  std::string NameFormula(const kube::ObjectKey& key) const override;

 private:
  Result<kube::Json> Translate(const kube::Json& virtual_service);
  std::map<kube::ObjectKey, std::string> names_;
};

// A headless Service and Endpoints at the host Service's address. An object of the tenant's own
// under that name is left alone, with an Event.
class ServiceFromHost final : public KindSyncer {
 public:
  explicit ServiceFromHost(SyncContext& context);

  void Watch(Enqueue enqueue) override;
  client::ObjectPtr Virtual(const kube::ObjectKey& key) const override;
  client::ObjectPtr Host(const kube::ObjectKey& key) const override;
  Result<client::Outcome> SyncToHost(const kube::Json& virtual_service) override;
  Result<client::Outcome> Sync(const kube::Json& virtual_service,
                               const kube::Json& host_service) override;
  Result<client::Outcome> SyncToVirtual(const kube::ObjectKey& key,
                                        const kube::Json& host_service) override;
  Result<client::Outcome> Gone(const kube::ObjectKey& key) override;

 private:
  Result<client::Outcome> Write(const kube::ObjectKey& key, const kube::Json& host_service);

  struct Source {
    kube::ObjectKey host;
    client::Informer* informer = nullptr;
  };
  SyncContext& context_;
  std::map<kube::ObjectKey, Source> sources_;  // by virtual key
  client::Informer* virtual_services_ = nullptr;
};

}  // namespace sublet::syncer
