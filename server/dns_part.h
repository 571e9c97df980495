// DnsPart: the nameserver of one control plane: its zone, kept by informers, behind a port.
// Threads: Make, Start and Stop one at a time.
#pragma once

#include <memory>
#include <string>

#include "client/informer.h"
#include "dns/server.h"

namespace sublet::server {

class DnsPart {
 public:
  // `listen` is "ADDRESS:PORT". Errors: BadRequest (no such address), Conflict (in use).
  static Result<std::unique_ptr<DnsPart>> Make(client::Client client, const std::string& listen,
                                               const std::string& domain);
  ~DnsPart();
  void Start();
  void Stop();  // idempotent

 private:
  DnsPart(client::Client client, const std::string& domain);

  client::InformerFactory informers_;
  dns::Zone zone_;
  std::unique_ptr<dns::Server> server_;
};

}  // namespace sublet::server
