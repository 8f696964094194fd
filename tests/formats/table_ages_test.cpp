// The headers that AITER has shipped since December 2024, one file of one row each.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "formats/aiter/tuned_csv.h"

namespace gemmtune {
namespace {

struct Age {
  const char* when;
  const char* file;
  const char* header;
  const char* row;
  const char* device;  // what the row's gfx and cu_num are
};

const std::vector<Age>& ages() {
  static const std::vector<Age> list{
      {"2024-12", "tuned_gemm.csv", "M,N,K,bias,dtype,outdtype,libtype,solidx,soltimes",
       "16,2048,1024,False,torch.bfloat16,torch.bfloat16,hipblaslt,7,12.5", " 0"},
      {"2025-05", "tuned_gemm.csv", "M,N,K,bias,dtype,outdtype,scaleAB,libtype,solidx,soltimes,kernelName",
       "16,2048,1024,False,torch.bfloat16,torch.bfloat16,False,hipblaslt,7,12.5,name", " 0"},
      {"2025-10", "tuned_gemm.csv",
       "M,N,K,bias,dtype,outdtype,scaleAB,cu_num,libtype,solidx,soltimes,kernelName,tflops,bw",
       "16,2048,1024,False,torch.bfloat16,torch.bfloat16,False,80,hipblaslt,7,12.5,name,1,2", " 80"},
      {"2025-11", "bf16_tuned_gemm.csv",
       "M,N,K,bias,dtype,outdtype,scaleAB,cu_num,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw",
       "16,2048,1024,False,torch.bfloat16,torch.bfloat16,False,80,asm,7,2,12.5,name,0.0,1,2", " 80"},
      {"2026-01", "bf16_tuned_gemm.csv",
       "cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,"
       "tflops,bw",
       "80,16,2048,1024,False,torch.bfloat16,torch.bfloat16,False,False,asm,7,2,12.5,name,0.0,1,2", " 80"},
      {"2024-12", "a8w8_tuned_gemm.csv", "M,N,K,kernelId,splitK,us,kernelName", "16,2048,1024,7,2,12.5,name",
       " 0"},
      {"2025-05", "a8w8_tuned_gemm.csv", "cu_num,M,N,K,kernelId,splitK,us,kernelName",
       "80,16,2048,1024,7,2,12.5,name", " 80"},
      {"2025-10", "a8w8_bpreshuffle_tuned_gemm.csv",
       "cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio",
       "80,16,2048,1024,7,2,12.5,name,1,2,0.0", " 80"},
      {"2025-11", "a8w8_blockscale_tuned_gemm.csv",
       "cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio",
       "80,16,2048,1024,ck,7,2,12.5,name,1,2,0.0", " 80"},
      {"2026-01", "a8w8_bpreshuffle_tuned_gemm.csv",
       "cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio",
       "80,16,2048,1024,torch.float8_e4m3fnuz,ck,7,2,12.5,name,1,2,0.0", " 80"},
      {"2026-06", "a8w8_blockscale_tuned_gemm.csv",
       "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio",
       "gfx942,80,16,2048,1024,ck,7,2,12.5,name,1,2,0.0", "gfx942 80"},
      {"2024-12", "tuned_fmoe.csv",
       "token,inter_dim,model_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_"
       "stage1,"
       "block_m,ksplit,us,tag,err",
       "16,2048,1024,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0,"
       "32,2,12.5,"
       ",0.0",
       " 0"},
      {"2026-01", "tuned_fmoe.csv",
       "cu_num,token,inter_dim,model_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
       "doweight_stage1,block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw",
       "80,16,2048,1024,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,"
       "0,32,2,"
       "6.0,name,0.0%,6.5,other,0.0%,12.5,0,1,2",
       " 80"},
  };
  return list;
}

TEST(TableAges, EveryHeaderIsRead) {
  for (const Age& age : ages()) {
    SCOPED_TRACE(std::string(age.when) + " " + age.file);
    const auto file = parse_tuned_csv(age.file, std::string(age.header) + "\n" + age.row);
    ASSERT_TRUE(file.ok()) << file.message();
    ASSERT_EQ(file->entries.size(), 1U);
    const TunedEntry& entry = file->entries[0];
    EXPECT_EQ(entry.gfx + " " + std::to_string(entry.cu_num), age.device);
    EXPECT_EQ(entry.problem.m, 16);
    EXPECT_EQ(entry.problem.n, 2048);
    EXPECT_EQ(entry.problem.k, 1024);
    EXPECT_EQ(entry.us, 12.5);
    EXPECT_EQ(entry.kernel_name, file->columns.has(Column::kernel_name) ? "name" : "");
    EXPECT_EQ(entry.split_k, file->columns.has(Column::split_k) ? 2 : 0);
  }
}

TEST(TableAges, AColumnThatATableDoesNotUseIsIgnored) {
  const auto file = parse_tuned_csv("a8w8_blockscale_bpreshuffle_tuned_gemm.csv",
                                    "cu_num,M,N,K,q_dtype_w,us,kernelName\n80,1,2,3,torch.int4,5,name\n");
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(form_of(file->entries.at(0).problem), OperationForm(Operation::a8w8_blockscale, true));
}

}  // namespace
}  // namespace gemmtune
