// A problem as a program gives it to the C functions.
#pragma once

#include <gemmtune/c.h>

#include "capi/c_problem.h"
#include "problem/problem.h"

namespace gemmtune::test {

class CProblem {
 public:
  explicit CProblem(const Problem& problem) {
    problem_.size = sizeof problem_;
    problem_.operation = c::operation_to_c(form_of(problem));
    problem_.x_type = c::type_to_c(problem.x_type);
    problem_.w_type = c::type_to_c(problem.w_type);
    problem_.y_type = c::type_to_c(problem.y_type);
    problem_.m = problem.m;
    problem_.n = problem.n;
    problem_.k = problem.k;
    problem_.batch = problem.batch;
    problem_.bias = problem.bias ? 1 : 0;
    problem_.scale_ab = problem.scale_ab ? 1 : 0;
    problem_.e8m0_scales = problem.e8m0_scales ? 1 : 0;
    problem_.w_group = problem.w_group;
    problem_.zero_points = problem.zero_points ? 1 : 0;
    problem_.weight_layout = c::layout_to_c(problem.weight_layout);
    problem_.alignment = problem.alignment;
    problem_.x_order = static_cast<gemmtune_order>(problem.x_order);
    problem_.w_order = static_cast<gemmtune_order>(problem.w_order);
    if (is_mixture(problem)) problem_.moe = &moe_;
    moe_.size = sizeof moe_;
    moe_.experts = problem.moe.experts;
    moe_.topk = problem.moe.topk;
    moe_.shared_experts = problem.moe.shared_experts;
    moe_.activation = static_cast<gemmtune_activation>(problem.moe.activation);
    moe_.quant_type = static_cast<gemmtune_quant_type>(problem.moe.quant_type);
    moe_.gated = problem.moe.gated ? 1 : 0;
    moe_.doweight_stage1 = problem.moe.doweight_stage1 ? 1 : 0;
  }
  CProblem(const CProblem&) = delete;
  CProblem& operator=(const CProblem&) = delete;
  const gemmtune_problem* get() const { return &problem_; }
  const gemmtune_problem* operator->() const { return &problem_; }
  gemmtune_problem* operator->() { return &problem_; }
  gemmtune_moe& moe() { return moe_; }

 private:
  gemmtune_problem problem_{};
  gemmtune_moe moe_{};
};

}  // namespace gemmtune::test
