// Request and RequestInfo: one API request as the pipeline and the handlers see it, whoever carried
// it (http/ over TLS, or the loopback transport in process).
// Threads: a Request belongs to the one thread that works on it; it is handed over, never shared.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace sublet::apiserver {

// Who asks. Source: k8s.io/apiserver authentication/user.Info.
struct User {
  std::string name;  // "system:anonymous" when nobody
  std::string uid;
  std::vector<std::string> groups;
  std::map<std::string, std::vector<std::string>> extra;
};

// The decoded query, in order of appearance.
class Query {
 public:
  Query() = default;
  explicit Query(std::vector<std::pair<std::string, std::string>> items)
      : items_(std::move(items)) {}
  // The first value of `name`, or "".
  std::string_view Get(std::string_view name) const;
  bool Has(std::string_view name) const;
  std::vector<std::string_view> All(std::string_view name) const;
  const std::vector<std::pair<std::string, std::string>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string, std::string>> items_;
};

// What a path and method mean. Source: k8s.io/apiserver endpoints/request.RequestInfo.
struct RequestInfo {
  bool is_resource = false;
  std::string verb;  // get list watch create update patch delete deletecollection; else the method
  std::string prefix;  // "api" or "apis"
  std::string group;
  std::string version;
  std::string namespace_name;
  std::string resource;
  std::string subresource;
  std::string name;  // of the path; "" for list, watch of a collection, create, deletecollection
  // The name that `fieldSelector=metadata.name=x` of a list or watch demands: authorization counts
  // it as the name, handlers do not.
  std::string selected_name;
  std::string rest;  // what follows the subresource (proxy paths), with its leading '/'
};

struct Request {
  std::string method;
  std::string path;      // decoded
  std::string raw_path;  // as sent, without the query
  std::string raw_query;
  Query query;
  // Lower-cased names. Credentials are removed once authentication has looked at them.
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::string remote_address;  // "127.0.0.1:4711"; "loopback" in process
  // The client certificate's subject when TLS verified one: common name and organizations.
  std::string tls_common_name;
  std::vector<std::string> tls_organizations;
  std::string tls_fingerprint;            // SHA-256 of the certificate, hexadecimal
  bool tls_certificate_rejected = false;  // one was shown that our authority does not vouch for
  bool loopback = false;  // in process: authenticated as the user the transport names
  Deadline deadline = Deadline::max();
  WallTime received;

  RequestInfo info;
  User user;
  std::string audit_id;
  // Warning headers collected on the way; sent with the answer.
  std::vector<std::string> warnings;

  std::string_view Header(std::string_view lower_case_name) const;
};

// Splits path and method into a RequestInfo. Never fails: what is no resource path is non-resource.
RequestInfo ParseRequestInfo(std::string_view method, std::string_view path, const Query& query);
// Percent-decodes a path ("+" stays).
std::string DecodePath(std::string_view raw_path);
// Decodes a query string ("a=b&c=%20"); malformed escapes are kept as they stand.
Query ParseQuery(std::string_view text);

}  // namespace sublet::apiserver
