// Reporter: what the syncer tells a tenant, as Events on the tenant's object (SyncError,
// SyncWarning, RejectedByHost ...). Host names never appear in them: they are turned back into
// virtual ones first. Threads: any; returns at once, the recorder writes in the background and
// folds repetitions.
#pragma once

#include <string>
#include <string_view>

#include "client/events.h"
#include "syncer/name_mapping.h"
#include "syncer/names.h"

namespace sublet::syncer {

class Reporter {
 public:
  // Both outlive the reporter.
  Reporter(client::EventRecorder& recorder, const NameMapping& mapping, Tenant tenant)
      : recorder_(recorder), mapping_(mapping), tenant_(std::move(tenant)) {}

  // `object` is the virtual object with apiVersion, kind and metadata.
  void Warn(const kube::Json& object, std::string_view reason, std::string_view message);
  void Normal(const kube::Json& object, std::string_view reason, std::string_view message);

  // `text` with every host name of this tenant replaced by the virtual name, and the host namespace
  // by `virtual_namespace`.
  std::string Sanitise(std::string_view text, std::string_view virtual_namespace) const;

 private:
  client::EventRecorder& recorder_;
  const NameMapping& mapping_;
  const Tenant tenant_;
};

}  // namespace sublet::syncer
