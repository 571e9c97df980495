// Discovery: what clients ask first: which groups, versions and resources there are, in the legacy
// documents and the aggregated ones, and /version. Documents are made when asked for and kept until
// the catalog changes.
// Threads: any.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "apiserver/handlers/api_context.h"
#include "base/mutex.h"

namespace sublet::apiserver {

class Discovery {
 public:
  // `server_address` ("127.0.0.1:6443") stands in /api for old clients.
  explicit Discovery(std::string server_address);

  // Answers /, /api, /apis, /api/v1, /apis/<g>, /apis/<g>/<v>, /version. False when the path is
  // none of them.
  bool Serve(Call& call);

 private:
  struct Document {
    std::shared_ptr<const std::string> text;
    std::string etag;
  };
  // The document of `path` in form `form` ("", "v2", "v2beta1"); null text when there is none.
  Document Get(const Catalog& catalog, const std::string& path, std::string_view form)
      SUBLET_EXCLUDES(mutex_);
  std::string Make(const Catalog& catalog, std::string_view path, std::string_view form) const;
  void Send(Call& call, const Document& document, std::string_view form);

  const std::string server_address_;
  Mutex mutex_;
  std::uint64_t generation_ SUBLET_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Document> documents_ SUBLET_GUARDED_BY(mutex_);
};

// The body of /version.
std::string VersionJson();

}  // namespace sublet::apiserver
