// What a fresh namespace is given: the ServiceAccount "default" and the ConfigMap kube-root-ca.crt;
// and tokens for Secrets of type kubernetes.io/service-account-token. Source:
// kube-controller-manager pkg/controller/serviceaccount, certificates/rootcacertpublisher.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeServiceAccountController(const Context& context);
std::unique_ptr<Controller> MakeRootCaController(const Context& context);
std::unique_ptr<Controller> MakeTokenSecretController(const Context& context);

}  // namespace sublet::controllers
