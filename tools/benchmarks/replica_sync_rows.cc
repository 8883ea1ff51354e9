// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/replica_sync_rows.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "replicate/replica_set.h"
#include "tools/benchmarks/libtorch_peer.h"
#include "tools/benchmarks/models.h"

namespace lockstep::benchmarks {
namespace {

constexpr size_t kOurs = 0;
constexpr size_t kPeer = 1;
constexpr size_t kLimit = 2;

// Whether the parameters of every replica hold the module's values, bit for bit.
template <class M>
bool in_sync(const std::vector<at::Tensor>& expected,
             const std::vector<std::shared_ptr<M>>& replicas) {
  for (const auto& replica : replicas) {
    const std::vector<at::Tensor> actual = replica->parameters();
    if (actual.size() != expected.size()) return false;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (actual[i].sizes() != expected[i].sizes() || !actual[i].is_contiguous()) return false;
      if (std::memcmp(actual[i].data_ptr(), expected[i].data_ptr(), expected[i].nbytes()) != 0) {
        return false;
      }
    }
  }
  return true;
}

void change_in_place(std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : parameters) parameter.add_(1);
}

// A copy of so many bytes between two buffers.
class PlainCopy {
 public:
  explicit PlainCopy(size_t bytes) : source_(bytes, 1), destination_(bytes, 2) {}
  void change() { std::memset(source_.data(), ++value_, source_.size()); }
  void copy() {
    std::memcpy(destination_.data(), source_.data(), source_.size());
    // The copy must not be optimised away: somebody may look at it.
    asm volatile("" : : "r"(destination_.data()) : "memory");
  }

 private:
  std::vector<unsigned char> source_;
  std::vector<unsigned char> destination_;
  unsigned char value_ = 0;
};

struct CaseOptions {
  bool share_parameters = true;
  bool change = true;
};

// Seconds per synchronisation of ours.
template <class M>
double measure_case(Session& session, const std::string& name, const std::shared_ptr<M>& module,
                    const CaseOptions& options) {
  replicate::ReplicateOptions replicate_options;
  replicate_options.share_parameters = options.share_parameters;
  const std::vector<c10::Device> devices{c10::Device(at::kCPU), c10::Device(at::kCPU)};
  replicate::ReplicaSet<M> set(module, devices, replicate_options);
  std::vector<std::shared_ptr<M>> peer_replicas;

  std::vector<at::Tensor> parameters = module->parameters();
  size_t bytes = 0;
  for (const at::Tensor& parameter : parameters) bytes += parameter.nbytes();
  PlainCopy plain(bytes);

  bool ours_right = true;
  bool peer_right = true;
  std::function<void()> change;
  if (options.change) change = [&] { change_in_place(parameters); };
  std::vector<Side> sides{
      {"ReplicaSet::synchronize", [&] { set.synchronize(); }, nullptr, change,
       [&] { ours_right = ours_right && in_sync(parameters, set.replicas()); }},
      {"LibTorch replicate", [&] { peer_replicas = libtorch_peer::replicate(module); }, nullptr,
       change, [&] { peer_right = peer_right && in_sync(parameters, peer_replicas); }}};
  std::vector<Comparison> comparisons{{kPeer, kOurs}};
  CaseSides row{options.change ? "P3" : "P3-unchanged", name, "us", kOurs, kPeer, std::nullopt};
  if (options.change) {
    sides.push_back({"memcpy", [&] { plain.copy(); }, nullptr,
                     [&] {
                       change_in_place(parameters);
                       plain.change();
                     }});
    comparisons.push_back({kLimit, kOurs});
    row.limit = kLimit;
  }
  const PairedRun run(sides, comparisons, session.paired_options(), process_meter());
  session.check(ours_right, row.id + " " + name + ": replicas differ from the module");
  session.check(peer_right, row.id + " " + name + ": LibTorch's replicas differ from the module");
  session.add_case(row, run);
  return run.median_seconds(kOurs);
}

void measure_all(Session& session, bool change) {
  const std::string id = change ? "P3" : "P3-unchanged";
  if (!session.wants(id)) return;
  for (const bool shared : {true, false}) {
    const std::string suffix = shared ? "-shared" : "-separate";
    std::vector<std::pair<int64_t, double>> seconds;
    for (const int64_t n : {10, 100, 1000, 10000}) {
      const std::string name = "n" + std::to_string(n) + suffix;
      if (!session.wants_case(name)) continue;
      seconds.emplace_back(n, measure_case(session, name, std::make_shared<ManyParameters>(n, 16),
                                           {shared, change}));
    }
    if (seconds.size() == 4) {
      const double slope = (seconds[3].second - seconds[2].second) /
                           static_cast<double>(seconds[3].first - seconds[2].first);
      session.note(id + suffix + ": from 1,000 to 10,000 parameters each takes " +
                   format_time(slope, "us"));
    }
    const std::string name = "layers100x64x64" + suffix;
    if (session.wants_case(name)) {
      measure_case(session, name, std::make_shared<Mlp>(std::vector<int64_t>(101, 64)),
                   {shared, change});
    }
  }
  session.add_geomean(id);
}

}  // namespace

void measure_replica_sync(Session& session) {
  measure_all(session, /*change=*/true);
  measure_all(session, /*change=*/false);
}

}  // namespace lockstep::benchmarks
