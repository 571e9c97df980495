// AccessQuestion: one question to the authorizer beyond the request's own, which the pipeline has
// answered.
#pragma once

#include <string>

namespace sublet::apiserver {

struct AccessQuestion {
  std::string verb;
  std::string group;
  std::string version;
  std::string resource;
  std::string subresource;
  std::string namespace_name;
  std::string name;
};

}  // namespace sublet::apiserver
