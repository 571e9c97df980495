// MetricsHandler: GET /metrics in Prometheus' text format, with the process' own figures.
// Threads: any; reads a few files of /proc.
#pragma once

#include "apiserver/handler.h"
#include "base/metrics.h"

namespace sublet::apiserver {

class MetricsHandler final : public Handler {
 public:
  explicit MetricsHandler(Metrics& metrics);
  void Handle(std::unique_ptr<Request> request, ResponderPtr responder) override;

 private:
  Metrics& metrics_;
};

}  // namespace sublet::apiserver
