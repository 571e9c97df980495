// Zone: the names of one cluster: Services, their endpoints and pods, under its domain.
//   svc.NS.svc.DOMAIN             A of the ClusterIP, or of every ready endpoint of a headless one
//   HOST.svc.NS.svc.DOMAIN        A of the endpoint with that hostname
//   _PORT._PROTO.svc.NS.svc.DOMAIN  SRV
//   1-2-3-4.NS.pod.DOMAIN         A 1.2.3.4
//   4.3.2.1.in-addr.arpa          PTR of a Service or endpoint
// ExternalName is a CNAME.
// Source: Kubernetes DNS-Based Service Discovery 1.1.0.
// Threads: Ask from the server's thread; the informers keep the view in step.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "client/informer.h"
#include "dns/message.h"

namespace sublet::dns {

class Zone {
 public:
  // Registers informers on Services and EndpointSlices; before they start. `domain` is
  // "cluster.local".
  Zone(client::InformerFactory& informers, std::string domain);

  // The authoritative answer, or nullopt when the name is not of this cluster (to be forwarded).
  // An alias (ExternalName) comes with the records of its target when that is of the cluster too.
  std::optional<Answer> Ask(const Question& question) const;

 private:
  std::optional<Answer> AskOne(const Question& question) const;
  Answer AskService(const Question& question, std::vector<std::string> labels) const;
  Answer AskPod(const Question& question, const std::vector<std::string>& labels) const;
  std::optional<Answer> AskReverse(const Question& question) const;
  Answer NoName() const;

  const std::string domain_;
  client::Informer* services_ = nullptr;
  client::Informer* slices_ = nullptr;
};

}  // namespace sublet::dns
