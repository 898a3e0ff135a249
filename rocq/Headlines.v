(* The headline theorems in plain words, each from what the checker accepted of an exported certificate. *)
From Coq Require Import Reals List Lra ZArith QArith Qreals String.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Setting Ring Statements Rules Checker Models Parts Plain.
Require Parts_gradient Parts_offpolicy Parts_value Parts_neighbour.
Import ListNotations.
Open Scope R_scope.

(* K: the statement of the last part of a script, in the setting S with the parameters par *)
Ltac accepted K all name S par :=
  let l := lazymatch type of all with all_mean ?l => l end in
  let s := eval vm_compute in (part_named l name) in
  assert (K : last_holds S par (Models.parts s)) by
    (apply (last_ok s); [exact (named_means l name all)|reflexivity|intros; exact R1_neq_R0|apply satisfied_nothing]);
  let c := eval vm_compute in (rev (Models.parts s)) in
  lazymatch c with ?c :: _ => change (true_part S par c) in K end;
  data K.

Section Theorems.
Variable S : setting.

(* on-policy losses *)
Theorem k1_loss : expected_gradient S Mq (k1 S) = 0.
Proof.
  accepted K Parts_gradient.all_hold "gradient.k1-loss part 1"%string S ones. loss_then K. reflexivity.
Qed.
Theorem k2_loss : expected_gradient S Mq (k2 S) = grad_reverse_KL S.
Proof.
  accepted K Parts_gradient.all_hold "gradient.k2-loss part 1"%string S ones. loss_then K. target.
Qed.
Theorem k3_loss : expected_gradient S Mq (k3 S) = grad_forward_KL S.
Proof.
  accepted K Parts_gradient.all_hold "gradient.k3-loss part 1"%string S ones. loss_then K. target.
Qed.
Theorem k_lambda_loss (lam : R) :   (* k1 + lam (r - 1) *)
  expected_gradient S Mq (fun l f x => k1 S l f x - lam + lam * exp (- k1 S l f x)) = lam * grad_forward_KL S.
Proof.
  accepted K Parts_gradient.all_hold "gradient.k-lambda-loss part 1"%string S (only_parameter lam). loss_then K.
  unfold grad_forward_KL. f_equal. target.
Qed.

(* the two gradients *)
Theorem reverse_KL : grad_reverse_KL S = mean S Mq (fun x => now S (k1 S) x * s S x).
Proof.
  accepted K Parts_gradient.all_hold "gradient.reverse-kl part 1"%string S ones.
  etransitivity; [symmetry|etransitivity; [exact K|]]; [target|apply E_ext; value].
Qed.
Theorem forward_KL : grad_forward_KL S = mean S Mq (fun x => - exp (- now S (k1 S) x) * s S x).
Proof.
  accepted K Parts_gradient.all_hold "gradient.forward-kl part 2"%string S ones.
  etransitivity; [symmetry|etransitivity; [exact K|]]; [target|apply E_ext; value].
Qed.

(* off-policy losses *)
Theorem rho_k1_loss : expected_gradient S Mmu (times S (rho S) (k1 S)) = grad_reverse_KL S.
Proof.
  accepted K Parts_offpolicy.all_hold "offpolicy.rho-k1 part 1"%string S ones. loss_then K. target.
Qed.
Theorem rho_k2_loss :
  expected_gradient S Mmu (times S (rho S) (k2 S)) = gradient_of_mean S (fun l x => k2 S l l x).
Proof.
  accepted K Parts_offpolicy.all_hold "offpolicy.rho-k2 part 1"%string S ones. loss_then K. target.
Qed.
Theorem rho_k3_loss : expected_gradient S Mmu (times S (rho S) (k3 S)) = grad_reverse_KL S.
Proof.
  accepted K Parts_offpolicy.all_hold "offpolicy.rho-k3 part 1"%string S ones. loss_then K. target.
Qed.
Theorem sg_rho_k2_loss : expected_gradient S Mmu (times S (sg S (rho S)) (k2 S)) = grad_reverse_KL S.
Proof.
  accepted K Parts_offpolicy.all_hold "offpolicy.sg-rho-k2 part 1"%string S ones. loss_then K. target.
Qed.
Theorem detach_trap_k1 : expected_gradient S Mmu (times S (sg S (rho S)) (k1 S)) = 0.
Proof.
  accepted K Parts_offpolicy.all_hold "offpolicy.detach-trap part 1"%string S ones. loss_then K. reflexivity.
Qed.
Theorem detach_trap_k3 : expected_gradient S Mmu (times S (sg S (rho S)) (k3 S)) = grad_forward_KL S.
Proof.
  accepted K Parts_offpolicy.all_hold "offpolicy.detach-trap part 2"%string S ones. loss_then K. target.
Qed.
Theorem equal_at_each_sample :
  grad S (times S (sg S (rho S)) (k2 S)) (here S) = grad S (times S (rho S) (k3 S)) (here S).
Proof.
  accepted K Parts_offpolicy.all_hold "offpolicy.samplewise-equal part 1"%string S ones.
  etransitivity; [|etransitivity; [exact K|]]; apply Derive_ext; intros; value.
Qed.

(* values *)
Theorem rho_k3_value : mean S Mmu (now S (times S (rho S) (k3 S))) = KL S (q0 S) (p S).
Proof.
  accepted K Parts_offpolicy.all_hold "offpolicy.rho-k3 part 2"%string S ones.
  etransitivity; [|etransitivity; [exact K|]]; [apply E_ext; value|unfold mean, KL; cbn [E]; sums].
Qed.

(* a penalty in the reward *)
Theorem k1_in_reward_and_in_loss :
  mean S Mq (fun x => now S (k1 S) x * s S x) + expected_gradient S Mq (k1 S) = grad_reverse_KL S.
Proof.
  accepted K Parts_neighbour.all_hold "neighbour.in-reward-and-in-loss part 3"%string S ones.
  etransitivity; [|etransitivity; [exact K|]]; [f_equal; [apply E_ext; value|apply losses; value]|target].
Qed.
End Theorems.

(* ---------- refutations: there is a setting in which it fails ---------- *)
Tactic Notation "refuted" constr(all) constr(name) ident(S) ident(K) :=
  let l := lazymatch type of all with all_mean ?l => l end in
  let s := eval vm_compute in (part_named l name) in
  let M := fresh "M" in
  assert (M : meaning s) by exact (named_means l name all); hnf in M;
  let par := fresh "par" in let c := fresh "c" in let C := fresh "C" in
  destruct M as [S [par [c [_ [_ [C K]]]]]]; cbn in C; injection C as <-; data K.

Theorem k3_loss_is_not_reverse : exists S, expected_gradient S Mq (k3 S) <> grad_reverse_KL S.
Proof.
  refuted Parts_gradient.all_hold "gradient.k3-loss-not-reverse part 1"%string S K. exists S. intros H. apply K.
  etransitivity; [|etransitivity; [exact H|]]; [symmetry; apply losses; value|symmetry; target].
Qed.
Theorem rho_k2_is_not_reverse : exists S, expected_gradient S Mmu (times S (rho S) (k2 S)) <> grad_reverse_KL S.
Proof.
  refuted Parts_offpolicy.all_hold "offpolicy.rho-k2-not-reverse part 1"%string S K. exists S. intros H. apply K.
  etransitivity; [|etransitivity; [exact H|]]; [symmetry; apply losses; value|symmetry; target].
Qed.
Theorem unweighted_k3_is_not_reverse : exists S, expected_gradient S Mmu (k3 S) <> grad_reverse_KL S.
Proof.
  refuted Parts_neighbour.all_hold "neighbour.grpo-missing-weight part 1"%string S K. exists S. intros H. apply K.
  etransitivity; [|etransitivity; [exact H|]]; [symmetry; apply losses; value|symmetry; target].
Qed.
Theorem k2_is_a_biased_value : exists S, mean S Mq (now S (k2 S)) <> KL S (q0 S) (p S).
Proof.
  refuted Parts_value.all_hold "value.k2-biased part 1"%string S K. exists S. intros H. apply K.
  etransitivity; [|etransitivity; [exact H|]]; [apply E_ext; value|unfold mean, KL; cbn [E]; sums].
Qed.

Print Assumptions k3_loss.
Print Assumptions rho_k3_loss.
Print Assumptions k3_loss_is_not_reverse.
