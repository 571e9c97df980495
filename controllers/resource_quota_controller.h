// ResourceQuota: keeps status.hard and status.used. Admission adds to `used` in the transaction
// that makes an object (apiserver/admission/resource_quota.cc); this controller counts anew when a
// quota is new or changed and when something that counts has gone.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

// Source: kube-controller-manager pkg/controller/resourcequota.
std::unique_ptr<Controller> MakeResourceQuotaController(const Context& context);

}  // namespace sublet::controllers
