// Persistent volume claims: bound to volumes that fit or that the local-path provisioner makes
// (host only), and kept from vanishing while a pod uses them. Source: kube-controller-manager
// pkg/controller/volume/persistentvolume, pvcprotection, pvprotection.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

// The provisioner's name in a StorageClass.
inline constexpr std::string_view kLocalPathProvisioner = "sublet.dev/local-path";

std::unique_ptr<Controller> MakeVolumeBinder(const Context& context);
std::unique_ptr<Controller> MakeClaimProtection(const Context& context);

}  // namespace sublet::controllers
