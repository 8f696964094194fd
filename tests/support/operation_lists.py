"""A list of two shapes of each operation, as an untuned file whose name says nothing, and options with which it is tuned quickly."""

import csv

DENSE = "M,N,K\n3,64,64\n5,96,64\n"
BATCHED = "B,M,N,K\n2,3,64,64\n2,5,96,64\n"
MIXTURE = ("token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1\n"
           "3,64,64,4,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0\n"
           "5,96,64,4,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0\n")
LISTS = {"a16w16": DENSE.replace("K\n", "K,dtype\n").replace("64\n", "64,torch.bfloat16\n"), "batched_bf16": BATCHED, "batched_a8w8": BATCHED,
         "fused_moe": MIXTURE, **{operation: DENSE for operation in (
             "a8w8", "a8w8_bpreshuffle", "a8w8_blockscale", "a8w8_blockscale_bpreshuffle", "a4w4_blockscale", "a16w4", "a8w4")}}
QUICK = ["--search", "random", "--iters", "1", "--confirmations", "1"]


def rows_of(lines):
    """M, or tokens, of the rows of a tuned file."""
    return sorted(row.get("M") or row["token"] for row in csv.DictReader(lines))


class OperationLists:
    """What tests of recipes share, beside unittest.TestCase with a `folder`."""

    def each_operation(self):
        """(operation, a folder of its own with its list list.csv)."""
        for operation, text in LISTS.items():
            folder = self.folder / operation
            folder.mkdir()
            (folder / "list.csv").write_text(text)
            yield operation, folder

    def expect_both_rows(self, table, log):
        self.assertTrue(table.is_file(), log)
        with open(table, newline="", encoding="utf-8") as file:
            self.assertEqual(rows_of(file), ["3", "5"], log)
