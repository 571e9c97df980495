// Pki: the keys and certificates of one control plane, as files in DIR/pki, made at the first
// start:
//   ca.crt ca.key                       the authority (EC P-256, ten years)
//   apiserver.crt .key                  what the TLS port shows (a year, renewed)
//   admin.crt .key                      system:masters, for the written kubeconfig (a year, renewed)
//   apiserver-kubelet-client.crt .key   what kubelets see (a year, renewed)
//   sa.key sa.pub                       signs service account tokens
// Private keys have mode 0600; a file is written beside its place and renamed, so a crash leaves
// the old or the new one. Threads: Renew one at a time; the getters any.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apiserver/auth/certificates.h"
#include "base/mutex.h"

namespace sublet::apiserver {

struct PkiOptions {
  std::string directory;  // DIR/pki; made when missing
  // Names and addresses by which clients reach the server, besides the built-in ones (localhost,
  // kubernetes, kubernetes.default[.svc[.cluster.local]], 127.0.0.1, ::1).
  std::vector<std::string> server_dns_names;
  std::vector<std::string> server_ip_addresses;
  std::string cluster_domain = "cluster.local";
};

class Pki {
 public:
  // Loads what is there, makes what is missing, renews what is near its end or no longer covers the
  // names asked for. Errors: BadRequest (an unreadable file), Forbidden (no permission),
  // ServiceUnavailable (disk full), each naming the file.
  static Result<std::unique_ptr<Pki>> Open(const PkiOptions& options, const Clock& clock);

  std::string authority_certificate() const { return authority_->pair().certificate; }
  const CertificateAuthority& authority() const { return *authority_; }
  KeyPair serving() const SUBLET_EXCLUDES(mutex_);
  KeyPair admin() const SUBLET_EXCLUDES(mutex_);
  KeyPair kubelet_client() const SUBLET_EXCLUDES(mutex_);
  const std::string& service_account_key() const { return service_account_key_; }

  // Issues leaves anew whose life is over by two thirds. True when one changed: the caller gives
  // the listener its new material.
  Result<bool> Renew() SUBLET_EXCLUDES(mutex_);

 private:
  struct Leaf;
  Pki(PkiOptions options, const Clock& clock) : options_(std::move(options)), clock_(clock) {}
  Result<void> Load();
  Result<bool> EnsureLeaf(const std::string& name, const LeafOptions& leaf, KeyPair* pair);
  std::vector<Leaf> Leaves();

  const PkiOptions options_;
  const Clock& clock_;
  std::shared_ptr<const CertificateAuthority> authority_;
  std::string service_account_key_;
  mutable Mutex mutex_;
  KeyPair serving_ SUBLET_GUARDED_BY(mutex_);
  KeyPair admin_ SUBLET_GUARDED_BY(mutex_);
  KeyPair kubelet_client_ SUBLET_GUARDED_BY(mutex_);
};

// A kubeconfig with one cluster, user and context named `name`; `server` is an https URL. With
// `token` set the user has that instead of the client certificate.
std::string MakeKubeconfig(const std::string& name, const std::string& server,
                           const std::string& authority_certificate, const KeyPair& client,
                           const std::string& token = "");

// Writes `text` to `path` by way of a temporary name in the same folder. Errors as Pki::Open.
// `durable`: its content is on the disk when it returns; its name once the folder is synced.
Result<void> WriteFileAtomically(const std::string& path, std::string_view text, unsigned mode,
                                 bool durable = false);
// Errors: NotFound, Forbidden, InternalError; each names the path.
Result<std::string> ReadWholeFile(const std::string& path);

}  // namespace sublet::apiserver
