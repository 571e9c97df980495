// Names made from metadata.generateName: a base and five random characters.
// Source: k8s.io/apiserver pkg/storage/names.
#pragma once

#include <string>
#include <string_view>

namespace sublet::kube {

// `base` cut to 58 bytes, then 5 characters of bcdfghjklmnpqrstvwxz2456789. Threads: any.
std::string GenerateName(std::string_view base);

}  // namespace sublet::kube
