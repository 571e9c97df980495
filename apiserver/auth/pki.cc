#include "apiserver/auth/pki.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "base/base64.h"
#include "base/log.h"

namespace sublet::apiserver {
namespace {

Status FileError(std::string_view what, const std::string& path, int error) {
  const std::string text = "cannot " + std::string(what) + " " + path + ": " + std::strerror(error);
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS: return Status(Reason::kForbidden, text);
    case ENOSPC:
    case EDQUOT: return ServiceUnavailable(text);
    case ENOENT: return Status(Reason::kNotFound, text);
    default: return InternalError(text);
  }
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Result<KeyPair> ReadPair(const std::string& base) {
  KeyPair pair;
  SUBLET_TRY(pair.certificate, ReadWholeFile(base + ".crt"));
  SUBLET_TRY(pair.key, ReadWholeFile(base + ".key"));
  return pair;
}

Result<void> WritePair(const std::string& base, const KeyPair& pair, bool durable) {
  SUBLET_RETURN_IF_ERROR(WriteFileAtomically(base + ".key", pair.key, 0600, durable));
  return WriteFileAtomically(base + ".crt", pair.certificate, 0644, durable);
}

// Makes the names of new files durable.
Result<void> SyncDirectory(const std::string& directory) {
  const FileDescriptor folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || ::fsync(folder.get()) != 0) {
    return FileError("sync", directory, errno);
  }
  return {};
}

// The names a leaf was made for, kept beside it, so that new --listen or config names take effect.
std::string Fingerprint(const LeafOptions& leaf) {
  std::string text = leaf.common_name + "\n";
  for (const auto* list : {&leaf.organizations, &leaf.dns_names, &leaf.ip_addresses}) {
    for (const auto& item : *list) {
      text.append(item).append("\n");
    }
    text.append("-\n");
  }
  return text;
}

}  // namespace

Result<std::string> ReadWholeFile(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    return FileError("read", path, errno);
  }
  std::string text;
  char buffer[8192];
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0) {
      return FileError("read", path, errno);
    }
    if (got == 0) {
      return text;
    }
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

Result<void> WriteFileAtomically(const std::string& path, std::string_view text, unsigned mode,
                                 bool durable) {
  const std::string temporary = path + ".new";
  {
    const FileDescriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
    if (file.get() < 0) {
      return FileError("write", temporary, errno);
    }
    ::fchmod(file.get(), mode);
    while (!text.empty()) {
      const ssize_t written = ::write(file.get(), text.data(), text.size());
      if (written < 0) {
        return FileError("write", temporary, errno);
      }
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    if (durable && ::fdatasync(file.get()) != 0) {
      return FileError("sync", temporary, errno);
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    return FileError("write", path, errno);
  }
  return {};
}

struct Pki::Leaf {
  std::string name;
  LeafOptions options;
  KeyPair* pair;
};

std::vector<Pki::Leaf> Pki::Leaves() SUBLET_NO_THREAD_SAFETY_ANALYSIS {
  LeafOptions serving;
  serving.common_name = "kube-apiserver";
  serving.is_server = true;
  serving.dns_names = {"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
                       "kubernetes.default.svc." + options_.cluster_domain};
  serving.ip_addresses = {"127.0.0.1", "::1"};
  for (const auto& name : options_.server_dns_names) {
    serving.dns_names.push_back(name);
  }
  for (const auto& address : options_.server_ip_addresses) {
    serving.ip_addresses.push_back(address);
  }
  LeafOptions admin;
  admin.common_name = "kubernetes-admin";
  admin.organizations = {"system:masters"};
  admin.is_client = true;
  LeafOptions kubelet_client;
  kubelet_client.common_name = "kube-apiserver-kubelet-client";
  kubelet_client.organizations = {"system:masters"};
  kubelet_client.is_client = true;
  return {{"apiserver", std::move(serving), &serving_},
          {"admin", std::move(admin), &admin_},
          {"apiserver-kubelet-client", std::move(kubelet_client), &kubelet_client_}};
}

Result<std::unique_ptr<Pki>> Pki::Open(const PkiOptions& options, const Clock& clock) {
  if (::mkdir(options.directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return FileError("make", options.directory, errno);
  }
  std::unique_ptr<Pki> pki(new Pki(options, clock));
  SUBLET_RETURN_IF_ERROR(pki->Load());
  SUBLET_TRY(const bool changed, pki->Renew());
  static_cast<void>(changed);
  return pki;
}

// What cannot be made again (everybody trusts the authority, tokens are signed with the key) is
// durable before it is used; leaves are issued anew when they are missing or torn.
Result<void> Pki::Load() {
  bool made = false;
  const std::string authority_base = options_.directory + "/ca";
  auto pair = ReadPair(authority_base);
  if (pair.ok()) {
    auto loaded = CertificateAuthority::Load(*pair);
    if (!loaded.ok()) {
      return std::move(loaded).error().Prefixed(authority_base + ".crt");
    }
    authority_ = std::move(*loaded);
  } else if (pair.error().Is(Reason::kNotFound)) {
    SUBLET_TRY(authority_, CertificateAuthority::Make("kubernetes", clock_.Now()));
    SUBLET_RETURN_IF_ERROR(WritePair(authority_base, authority_->pair(), true));
    made = true;
  } else {
    return pair.error();
  }
  const std::string key_path = options_.directory + "/sa.key";
  auto key = ReadWholeFile(key_path);
  if (!key.ok() && key.error().Is(Reason::kNotFound)) {
    key = MakePrivateKey();
    if (key.ok()) {
      SUBLET_TRY(const std::string public_key, PublicKeyOf(*key));
      SUBLET_RETURN_IF_ERROR(WriteFileAtomically(options_.directory + "/sa.pub", public_key, 0644));
      SUBLET_RETURN_IF_ERROR(WriteFileAtomically(key_path, *key, 0600, true));
      made = true;
    }
  }
  if (made) {
    SUBLET_RETURN_IF_ERROR(SyncDirectory(options_.directory));
    SUBLET_RETURN_IF_ERROR(SyncDirectory(options_.directory + "/.."));
  }
  SUBLET_TRY(service_account_key_, std::move(key));
  return {};
}

// True when the leaf was issued anew: missing, near its end, other names, or of another authority.
Result<bool> Pki::EnsureLeaf(const std::string& name, const LeafOptions& leaf, KeyPair* pair) {
  const std::string base = options_.directory + "/" + name;
  const std::string fingerprint = Fingerprint(leaf) + EncodeBase64(authority_certificate()) + "\n";
  const auto stored_names = ReadWholeFile(base + ".names");
  auto stored = ReadPair(base);
  if (stored.ok() && stored_names.ok() && *stored_names == fingerprint) {
    const auto start = NotBefore(stored->certificate);
    const auto end = NotAfter(stored->certificate);
    if (start.ok() && end.ok() && clock_.Now() < *start + (*end - *start) / 3 * 2) {
      const bool changed = stored->certificate != pair->certificate;
      *pair = std::move(*stored);
      return changed;
    }
  }
  SUBLET_TRY(*pair, authority_->Issue(leaf, clock_.Now()));
  SUBLET_RETURN_IF_ERROR(WritePair(base, *pair, false));
  SUBLET_RETURN_IF_ERROR(WriteFileAtomically(base + ".names", fingerprint, 0644));
  log::Debug("issued a certificate", {{"name", name}});
  return true;
}

Result<bool> Pki::Renew() {
  MutexLock lock(mutex_);
  bool changed = false;
  for (Leaf& leaf : Leaves()) {
    SUBLET_TRY(const bool renewed, EnsureLeaf(leaf.name, leaf.options, leaf.pair));
    changed = changed || renewed;
  }
  return changed;
}

KeyPair Pki::serving() const {
  MutexLock lock(mutex_);
  return serving_;
}

KeyPair Pki::admin() const {
  MutexLock lock(mutex_);
  return admin_;
}

KeyPair Pki::kubelet_client() const {
  MutexLock lock(mutex_);
  return kubelet_client_;
}

std::string MakeKubeconfig(const std::string& name, const std::string& server,
                           const std::string& authority_certificate, const KeyPair& client,
                           const std::string& token) {
  std::string text = "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n";
  text += "    certificate-authority-data: " + EncodeBase64(authority_certificate) + "\n";
  text += "    server: " + server + "\n  name: " + name + "\n";
  text += "contexts:\n- context:\n    cluster: " + name + "\n    user: " + name +
          "\n  name: " + name + "\ncurrent-context: " + name + "\npreferences: {}\n";
  text += "users:\n- name: " + name + "\n  user:\n";
  if (token.empty()) {
    text += "    client-certificate-data: " + EncodeBase64(client.certificate) + "\n";
    text += "    client-key-data: " + EncodeBase64(client.key) + "\n";
  } else {
    text += "    token: " + token + "\n";
  }
  return text;
}

}  // namespace sublet::apiserver
