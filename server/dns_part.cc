#include "server/dns_part.h"

#include <cstdlib>

namespace sublet::server {

DnsPart::DnsPart(client::Client client, const std::string& domain)
    : informers_(std::move(client)), zone_(informers_, domain) {}

DnsPart::~DnsPart() { Stop(); }

Result<std::unique_ptr<DnsPart>> DnsPart::Make(client::Client client, const std::string& listen,
                                               const std::string& domain) {
  const auto colon = listen.rfind(':');
  const int port = colon == std::string::npos ? 0 : std::atoi(listen.c_str() + colon + 1);
  if (port < 1 || port > 65535) {
    return BadRequest("--dns-listen \"" + listen +
                      "\": allowed is ADDRESS:PORT, for example "
                      "0.0.0.0:1053");
  }
  std::unique_ptr<DnsPart> part(new DnsPart(std::move(client), domain));
  dns::ServerOptions options;
  options.address = listen.substr(0, colon);
  options.port = static_cast<std::uint16_t>(port);
  options.upstreams = dns::SystemResolvers(options.address);
  SUBLET_TRY(part->server_, dns::Server::Open(options, part->zone_));
  return part;
}

void DnsPart::Start() { informers_.Start(); }

void DnsPart::Stop() {
  if (server_) {
    server_->Stop();
  }
  informers_.Stop();
}

}  // namespace sublet::server
