// Router: which Handler a request goes to. A visible table that wiring fills before the server
// starts; exact paths first, then the longest prefix, then subresources, then all resources.
// Threads: immutable after wiring.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/handler.h"

namespace sublet::apiserver {

class Router {
 public:
  struct Route {
    Handler* handler = nullptr;  // null: nothing is served there
    // Runs on a thread of the request pool instead of the transport's: for handlers that wait for
    // the network or compute for milliseconds.
    bool is_slow = false;
  };

  // "/version". Handlers outlive the router.
  void AddPath(std::string path, Handler& handler, bool is_slow = false);
  // "/openapi/v3/": everything below.
  void AddPrefix(std::string prefix, Handler& handler, bool is_slow = false);
  // A subresource with a way of its own: {"", "pods", "exec"}.
  void AddSubresource(std::string_view group, std::string_view resource,
                      std::string_view subresource, Handler& handler, bool is_slow = false);
  // All other requests for resources, known or not.
  void SetResources(Handler& handler, bool is_slow = false);

  Route Find(const Request& request) const;
  // The exact paths and prefixes in order, as "/" lists them.
  std::vector<std::string> Paths() const;

 private:
  std::map<std::string, Route, std::less<>> paths_;
  std::map<std::string, Route, std::less<>> prefixes_;
  std::map<std::string, Route, std::less<>> subresources_;  // "group/resource/subresource"
  Route resources_;
};

}  // namespace sublet::apiserver
