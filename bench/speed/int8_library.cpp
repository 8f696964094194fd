#include "speed/int8_library.h"

#include <optional>

#include "backends/cpu/families/onednn/onednn_library.h"
#include "base/environment.h"
#include "measure/cold_pool.h"

namespace gemmtune::speed {
namespace {

class Int8Kernel final : public Kernel {
 public:
  Int8Kernel(std::shared_ptr<const cpu::OnednnLibrary> library, gemmtune_onednn_matmul* matmul)
      : library_(std::move(library)), matmul_(matmul) {}
  ~Int8Kernel() override { library_->table().destroy(matmul_); }

  std::size_t workspace_bytes() const override { return library_->table().scratch_bytes(matmul_); }
  WeightLayout weight_layout() const override { return WeightLayout::onednn; }
  Status run(const Operands& operands, void* workspace, Stream) const override {
    const gemmtune_onednn_arguments arguments{operands.x, operands.w, nullptr,
                                              operands.y, workspace,  nullptr};
    return cpu::call_onednn(library_->table().execute, matmul_, &arguments);
  }

 private:
  std::shared_ptr<const cpu::OnednnLibrary> library_;
  gemmtune_onednn_matmul* matmul_;
};

/// Packed weights, sums and the rotation over them.
struct Holdings {
  std::unique_ptr<Buffer> y;
  std::optional<ColdPool> pool;
  Rotation rotation;
};

Result<std::shared_ptr<Holdings>> make_holdings(Workplace& workplace, const cpu::OnednnLibrary& library,
                                                const gemmtune_onednn_weight& weight) {
  Device& device = workplace.device();
  const auto operands = workplace.operands();
  if (!operands.ok()) return operands.status();
  auto holdings = std::make_shared<Holdings>();
  std::size_t bytes = 0;
  GEMMTUNE_RETURN_IF_ERROR(cpu::call_onednn(library.table().packed_bytes, &weight, &bytes));
  const std::size_t limit = pool_limit_bytes(device, workplace.policy());
  auto pool = ColdPool::make(
      device, pool_shape(bytes, pool_target_bytes(device, Policy(), true), limit),
      [&](void* to) { return cpu::call_onednn(library.table().pack, &weight, operands->w, to); });
  if (!pool.ok()) return pool.status();
  holdings->pool.emplace(std::move(*pool));
  const auto y_bytes = static_cast<std::size_t>(workplace.largest().m * weight.n * 4);
  auto y = device.allocate(y_bytes, Placement::plain);
  if (!y.ok()) return y.status();
  holdings->y = std::move(*y);
  GEMMTUNE_RETURN_IF_ERROR(device.fill(holdings->y->data(), 0, y_bytes));
  for (std::size_t i = 0; i < holdings->pool->copies(); ++i) {
    Operands copy = *operands;
    copy.w = holdings->pool->copy(i);
    copy.y = holdings->y->data();
    holdings->rotation.operands.push_back(copy);
  }
  return holdings;
}

}  // namespace

Result<RoundMember> int8_library(Workplace& workplace, std::int64_t m, int threads) {
  const auto library = cpu::OnednnLibrary::load({{}, read_environment().onednn_folders}, std::nullopt);
  if (!library.ok()) return library.status();
  gemmtune_onednn_problem problem{};
  problem.weight = {workplace.largest().n, workplace.largest().k, gemmtune_onednn_s8, threads, 0, nullptr};
  problem.m = m;
  problem.y_type = gemmtune_onednn_s32;
  problem.packed = 1;
  gemmtune_onednn_matmul* matmul = nullptr;
  GEMMTUNE_RETURN_IF_ERROR(cpu::call_onednn((*library)->table().create, &problem, &matmul));
  RoundMember made;
  made.kernel = std::make_unique<Int8Kernel>(*library, matmul);
  made.name = "onednn s8s8s32 " + std::string((*library)->table().implementation(matmul));
  if (made.name.find(" ref") != std::string::npos) return Status::unsupported("{}", made.name);
  made.timed.thread_pool = "openmp";
  auto holdings = make_holdings(workplace, **library, problem.weight);
  if (!holdings.ok()) return holdings.status();
  made.timed.rotation = &(*holdings)->rotation;
  made.holds = *holdings;
  GEMMTUNE_RETURN_IF_ERROR(make_ready(workplace.device(), workplace.sampler(), made));
  return made;
}

}  // namespace gemmtune::speed
