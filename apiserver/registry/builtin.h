// The built-in kinds as resources: where each is stored and what the registry adds to its Kind.
// Threads: any.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/registry/resource.h"
#include "storage/store.h"

namespace sublet::apiserver {

// In discovery order. Several versions of one kind share their StoredType.
std::vector<ResourcePtr> BuiltinResources();

// "/registry/core/pods/".
std::string StoragePrefix(const kube::GroupResource& name);

// Makes the facts of values read back from disk (StoreOptions::make_attachment); knows the built-in
// types, everything else is taken for a custom resource.
std::function<std::shared_ptr<const storage::Attachment>(std::string_view key,
                                                         std::string_view bytes)>
MakeAttachmentFactory(const std::vector<ResourcePtr>& builtin);

}  // namespace sublet::apiserver
