(* The headline theorems in plain words, each from what the checker accepted of an exported certificate. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals String.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Stepwise Ring Statements Rules Existence Checker Completeness Combinations Models Fields Scripts Parts Plain.
Require Parts_gradient Parts_offpolicy Parts_value Parts_neighbour Parts_sequence Parts_shipped.
Import ListNotations.
Open Scope R_scope.

(* K: the statement of the last part of a script, in the setting S with the parameters par *)
Ltac accepted K all name S par :=
  let l := lazymatch type of all with all_mean ?l => l end in
  let s := eval vm_compute in (part_named l name) in
  assert (K : last_holds S par (Scripts.parts s)) by
    (apply (last_ok s); [exact (named_means l name all)|reflexivity|intros; exact R1_neq_R0|apply satisfied_nothing]);
  let c := eval vm_compute in (rev (Scripts.parts s)) in
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
Theorem reverse_KL : grad_reverse_KL S = average S Mq (fun x => now S (k1 S) x * s S x).
Proof.
  accepted K Parts_gradient.all_hold "gradient.reverse-kl part 1"%string S ones.
  etransitivity; [symmetry|etransitivity; [exact K|]]; [target|symmetry; apply averages; value].
Qed.
Theorem forward_KL : grad_forward_KL S = average S Mq (fun x => - exp (- now S (k1 S) x) * s S x).
Proof.
  accepted K Parts_gradient.all_hold "gradient.forward-kl part 2"%string S ones.
  etransitivity; [symmetry|etransitivity; [exact K|]]; [target|symmetry; apply averages; value].
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
  gradient_at S (times S (sg S (rho S)) (k2 S)) (sample_at_hand S) = gradient_at S (times S (rho S) (k3 S)) (sample_at_hand S).
Proof.
  accepted K Parts_offpolicy.all_hold "offpolicy.samplewise-equal part 1"%string S ones. rewrite !at_hand.
  etransitivity; [|etransitivity; [exact K|]]; [|symmetry]; apply losses; value.
Qed.

(* values *)
Theorem rho_k3_value : average S Mmu (now S (times S (rho S) (k3 S))) = KL S (q0 S) (p S).
Proof.
  accepted K Parts_offpolicy.all_hold "offpolicy.rho-k3 part 2"%string S ones.
  etransitivity; [|etransitivity; [exact K|]]; [apply averages; value|unfold KL, mean, mean_at; cbn [draws E spread stepwise support]; sums].
Qed.

(* a penalty in the reward *)
Theorem k1_in_reward_and_in_loss :
  average S Mq (fun x => now S (k1 S) x * s S x) + expected_gradient S Mq (k1 S) = grad_reverse_KL S.
Proof.
  accepted K Parts_neighbour.all_hold "neighbour.in-reward-and-in-loss part 3"%string S ones.
  etransitivity; [|etransitivity; [exact K|]]; [f_equal; [apply averages; value|apply losses; value]|target].
Qed.

(* the steps of a sequence *)
Theorem causality (A : outcome S -> R) : step_average S Mq (fun c => A (past_ c) * s S (now_ c)) = 0.
Proof.
  accepted K Parts_sequence.all_hold "sequence.causality part 1"%string (with_any S A) ones.
  change (step_average (with_any S A) Mq (fun c => A (past_ c) * s (with_any S A) (now_ c)) = 0).
  etransitivity; [|exact K]. apply step_averages; value.
Qed.
(* log ratios add up: E_q[k1] of a sequence, as which KL(q||p) is defined, is E_q[sum_t k1_t] *)
Theorem log_ratios_add_up : KL S (q0 S) (p S) = step_average S Mq (fun c => now S (k1 S) (now_ c)).
Proof.
  accepted K Parts_sequence.all_hold "sequence.chain-rule part 1"%string S ones.
  etransitivity; [|etransitivity; [exact K|symmetry; apply step_averages; value]].
  unfold KL, mean, mean_at; cbn [draws E spread stepwise support]; sums.
Qed.
(* the tower rule: E_m[sum_t f] = E_m[sum_t E_m[f | prefix]]; of no certificate, and proved from the definitions *)
Theorem tower_rule m (f : place -> R) : probability m = true ->
  step_average S m f = step_average S m (fun c => given_prefix S m f (fst (now_ c))).
Proof.
  intros M. unfold step_average. replace (support S m 0) with (outcomes S) by (destruct m; easy). unfold outcomes. rewrite !Sum_map.
  set (g := next_density S m (theta S)).
  assert (D : forall G : place -> R, Sum (walk (next S) (Datatypes.S (more S)) []) (fun v => density S m (theta S) ([], v) * Sum (places ([], v)) G) =
    Sum (walk (next S) (Datatypes.S (more S)) []) (fun v => product g [] v * Sum (places_after [] [] v) G)).
  { intros G. apply Sum_ext; intros v _. now rewrite density_product. }
  rewrite !D. apply (by_prefixes (next S) g (Datatypes.S (more S))); [|reflexivity]. intros n u L U.
  assert (N : n = (more S - List.length u)%nat) by lia. subst n. unfold at_prefix at 2. cbn [now_ fst].
  transitivity (given_prefix S m f u).
  - unfold at_prefix, given_prefix. apply Sum_ext; intros a _. f_equal. apply Sum_ext; intros v _. now rewrite density_product.
  - rewrite (Sum_ext _ _ (fun a => given_prefix S m f u * g u a)).
    + unfold g. rewrite Sum_scal, next_density_sum by assumption. ring.
    + intros a _. rewrite (Sum_ext _ _ (fun v => given_prefix S m f u * product g (u ++ [a]) v)) by (intros; ring).
      rewrite Sum_scal. unfold g. rewrite mass_after by exact M. ring.
Qed.
(* the chain rule: KL(q||p) of sequences is the mean, over sequences of q, of the sum over t of KL(q||p) of the next token *)
Theorem chain_rule_of_KL : KL S (q0 S) (p S) = step_average S Mq (fun c => next_KL S (fst (now_ c))).
Proof.
  rewrite log_ratios_add_up, (tower_rule Mq) by reflexivity. unfold step_average. apply Sum_ext; intros y _. f_equal.
  apply Sum_ext; intros c _. apply given_prefix_of_a_token.
Qed.
Theorem token_k1_loss : expected_step_gradient S Mq (k1 S) = 0.
Proof.
  accepted K Parts_sequence.all_hold "sequence.length-normalised-k1 part 3"%string S ones.
  etransitivity; [|exact K]. apply step_losses; value.
Qed.
(* the reward to go: each token is charged for the log ratios from it to the end *)
Theorem reward_to_go :
  step_average S Mq (fun c => (now S (k1 S) (now_ c) + now S (k1 S) (future_ c)) * s S (now_ c)) = grad_reverse_KL S.
Proof.
  accepted K Parts_sequence.all_hold "sequence.cumulative part 1"%string S ones.
  etransitivity; [|etransitivity; [exact K|target]]. apply step_averages; value.
Qed.
(* the k2 loss of each token misses what follows it *)
Theorem token_k2_loss : expected_step_gradient S Mq (k2 S) =
  grad_reverse_KL S + step_average S Mq (fun c => - now S (k1 S) (future_ c) * s S (now_ c)).
Proof.
  accepted K Parts_sequence.all_hold "sequence.token-loss-partial part 1"%string S ones.
  etransitivity; [|etransitivity; [exact K|]]; [apply step_losses; value|]. f_equal; [target|symmetry; apply step_averages; value].
Qed.
(* off-policy, each token weighted by the ratio of all tokens up to it *)
Theorem prefix_weighted_k1_loss :
  step_average S Mmu (fun c => Derive (fun t => let ratio x := exp (ln (q S t x) - ln (mu S x)) in
    ratio (past_ c) * ratio (now_ c) * (ln (q S t (now_ c)) - ln (p S (now_ c)))) (theta S)) = grad_reverse_KL S.
Proof.
  accepted K Parts_neighbour.all_hold "neighbour.offpolicy-sequence-k3 part 2"%string S ones.
  etransitivity; [|etransitivity; [exact K|]]; [apply step_averages; intros c y; apply Derive_ext; value|target].
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
Theorem k2_is_a_biased_value : exists S, average S Mq (now S (k2 S)) <> KL S (q0 S) (p S).
Proof.
  refuted Parts_value.all_hold "value.k2-biased part 1"%string S K. exists S. intros H. apply K.
  etransitivity; [|etransitivity; [exact H|]]; [symmetry; apply averages; value|unfold KL, mean, mean_at; cbn [draws E spread stepwise support]; sums].
Qed.

Theorem token_k2_is_not_reverse : exists S, expected_step_gradient S Mq (k2 S) <> grad_reverse_KL S.
Proof.
  refuted Parts_sequence.all_hold "sequence.token-loss-partial part 3"%string S K. exists S. intros H. apply K.
  etransitivity; [|etransitivity; [exact H|]]; [symmetry; apply step_losses; value|symmetry; target].
Qed.

(* ---------- uniqueness: such a function and no other, in all settings ---------- *)
Definition with_function (g : nat -> R -> R) (J : jets g) (S : setting) : setting :=
  {| token := token S; next := next S; more := more S; starts := starts S; here := here S; here_ok := here_ok S;
     theta := theta S; next_q := next_q S; next_p := next_p S; next_mu := next_mu S; next_q_pos := next_q_pos S;
     next_q_sum := next_q_sum S; next_q_diff := next_q_diff S; next_p_pos := next_p_pos S; next_p_sum := next_p_sum S;
     next_mu_pos := next_mu_pos S; next_mu_sum := next_mu_sum S; next_old := next_old S; next_old_pos := next_old_pos S; next_old_sum := next_old_sum S; paid := paid S; any := any S;
     fn := fun _ d l x => g d (l - ln (p S x)); fn_diff := fun _ d l x => along_log_q (g d) (g (Datatypes.S d)) (ln (p S x)) l (J d);
     names := names S; size := size S; size_ok := size_ok S |}.
(* K: g solves the last part of a script in all settings just where it is one of the family *)
Tactic Notation "unique" constr(all) constr(name) ident(g) ident(J) ident(K) :=
  let l := lazymatch type of all with all_mean ?l => l end in
  let s := eval vm_compute in (part_named l name) in
  let f := lazymatch eval vm_compute in (end_ s) with Unique ?f => f end in
  let c := lazymatch eval vm_compute in (rev (Scripts.parts s)) with ?c :: _ => c end in
  assert (K : (forall S, of_k1 S g -> true_part S ones c) <->
      exists b, forall k, g O k = den (at_k ones k) (known_part f) + poly (order f) b k) by
    exact (last_unique s f (named_means l name all) eq_refl eq_refl ones g (fun _ => R1_neq_R0) J);
  cbn [known_part order poly den dterm dlin dmon at_k] in K.

(* smooth losses of k1 whose expected gradient is grad KL(q||p): k1^2/2, up to a multiple of k1 and a constant *)
Theorem k2_is_the_only_loss_of_k1 (g : nat -> R -> R) : jets g ->
  ((forall S, expected_gradient S Mq (fun l _ x => g O (l - ln (p S x))) = grad_reverse_KL S) <->
   exists a b, forall k, g O k = k ^ 2 / 2 + (a + b * k)).
Proof.
  intros J. unique Parts_gradient.all_hold "gradient.k2-unique part 1"%string g J K.
  lazymatch type of K with (forall S, _ -> true_part S ones ?c) <-> _ =>
    assert (P : forall S, of_k1 S g -> (true_part S ones c <->
      expected_gradient S Mq (fun l _ x => g O (l - ln (p S x))) = grad_reverse_KL S)) end.
  { intros S G. unfold true_part. cbn [rel left right dside dproduct datom den dterm dlin dmon].
    rewrite exp_0, Q2R_1, Q2R_m1.
    replace (Derive _ _) with (grad_reverse_KL S) by (symmetry; target).
    replace (mean _ _ _ _) with (expected_gradient S Mq (fun l _ x => g O (l - ln (p S x)))); [split; lra|].
    apply losses. intros t x. unfold held, alone. cbn [den dterm dlin dmon val Setting.add nobody same_slot scode Nat.eqb Sum each].
    rewrite power_1, G, exp_0, Q2R_1. ring. }
  split.
  - intros H. destruct (proj1 K) as [b B]; [intros S G; apply P; auto|].
    exists (b 0%nat), (b 1%nat). intros k. rewrite B, half, power_2, exp_0 by reflexivity. field.
  - intros [a [b B]] S. apply (P (with_function g J S)); [easy|]. revert S. intros S. apply K; [|easy].
    exists (fun i => match i with O => a | _ => b end). intros k. rewrite B, half, power_2, exp_0 by reflexivity. field.
Qed.

(* a positive number stays positive nearby, and a negative one negative *)
Lemma indicator_settled (f : R -> R) (x d : R) : is_derive f x d -> f x <> 0 -> locally x (fun t => indicator (f t) = indicator (f x)).
Proof.
  intros D N. assert (C : continuous f x) by (apply (ex_derive_continuous f); now exists d).
  destruct (Rlt_dec 0 (f x)) as [P|P].
  - assert (L : locally (f x) (fun y => 0 < y)) by (apply (open_gt 0), P).
    assert (M : locally x (fun t => 0 < f t)) by exact (C _ L). revert M. apply filter_imp. intros t T. unfold indicator. destruct (Rlt_dec 0 (f t)), (Rlt_dec 0 (f x)); lra.
  - assert (L : locally (f x) (fun y => y < 0)) by (apply (open_lt 0); lra).
    assert (M : locally x (fun t => f t < 0)) by exact (C _ L). revert M. apply filter_imp. intros t T. unfold indicator. destruct (Rlt_dec 0 (f t)), (Rlt_dec 0 (f x)); lra.
Qed.

(* ---------- a clip: the names of a certificate are those of its bounds ---------- *)
Section Clip.
Variable S : setting.
Variable A : outcome S -> R.
Variable eps : R.
Definition ratio_of (t : R) (x : outcome S) : R := exp (ln (q S t x) - ln (mu S x)).
Definition clip (r : R) : R := Rmax (1 - eps) (Rmin r (1 + eps)).
Definition inside_clip (r : R) : R := if Rlt_dec r (1 - eps) then 0 else if Rlt_dec (1 + eps) r then 0 else 1.
Let T : setting := with_any S A.
Let par := only_parameter eps.
Let par_ok : forall i, par i true <> 0. Proof. intros i. exact R1_neq_R0. Qed.
Definition too_high : ep := [((-1)%Q, [], []); (1%Q, [], [(1%Q, [(Sample Whole W false, 1%Z)])]); ((-1)%Q, [(Par 0 false, 1%Z)], [])].
Definition too_low : ep := [(1%Q, [], []); ((-1)%Q, [], [(1%Q, [(Sample Whole W false, 1%Z)])]); ((-1)%Q, [(Par 0 false, 1%Z)], [])].
Definition bounds_ : list definition := [Define [Whole] Region too_high; Define [Whole] Region too_low].
Let ordered_bounds : ordered bounds_ = true. Proof. now vm_compute. Qed.
Section Named.
Variable N : values_of_names T.
Notation U := (with_names T N).
Hypothesis D : defined U par bounds_.
Lemma value_high r t x : N 0%nat r t [[x]] = indicator (ratio_of r x - 1 - eps).
Proof.
  etransitivity; [exact (D 0%nat _ eq_refl r t (alone U x))|]. unfold meant. cbn [stands_for defined_by]. apply f_equal.
  unfold too_high, ratio_of, alone. cbn [den dterm dlin dmon val Setting.add nobody same_slot scode Nat.eqb Sum each par only_parameter].
  rewrite !power_1, !exp_0, Q2R_1, Q2R_m1, !Rmult_1_l, !Rmult_1_r, !Rplus_0_r.
  change (q U r x) with (q S r x). change (mu U x) with (mu S x). cbn [only_parameter]. unfold par, only_parameter. ring.
Qed.
Lemma value_low r t x : N 1%nat r t [[x]] = indicator (1 - ratio_of r x - eps).
Proof.
  etransitivity; [exact (D 1%nat _ eq_refl r t (alone U x))|]. unfold meant. cbn [stands_for defined_by]. apply f_equal.
  unfold too_low, ratio_of, alone. cbn [den dterm dlin dmon val Setting.add nobody same_slot scode Nat.eqb Sum each par only_parameter].
  rewrite !power_1, !exp_0, Q2R_1, Q2R_m1, !Rmult_1_l, !Rmult_1_r, !Rplus_0_r.
  change (q U r x) with (q S r x). change (mu U x) with (mu S x). unfold par, only_parameter. ring.
Qed.
Definition given_bounds (f : list fact) : assumptions := Assume (Premises [] [] None bounds_ f) [] [].
Lemma satisfied_bounds f : (forall x, In x f -> is_so U par x) -> satisfied U par (given_bounds f).
Proof. intros F. repeat split; easy. Qed.
Hypothesis no_tie : forall x, In x (outcomes S) -> ratio_of (theta S) x <> 1 + eps /\ ratio_of (theta S) x <> 1 - eps.
Lemma ratio_derive x : exists d, is_derive (fun t => ratio_of t x) (theta S) d.
Proof.
  eexists. unfold ratio_of. apply (is_derive_comp exp (fun t => ln (q S t x) - ln (mu S x))).
  - apply is_derive_exp.
  - apply (is_derive_minus (fun t => ln (q S t x)) (fun _ => ln (mu S x))); [apply s_derive|apply (is_derive_const (V := R_NormedModule))].
Qed.
Lemma no_sample_crosses x : In x [Settled Mmu Single (Named [Whole] 0 Still false); Settled Mmu Single (Named [Whole] 1 Still false)] -> is_so U par x.
Proof.
  intros [<-|[<-|[]]]; cbn [is_so]; intros w R1; destruct R1 as [y [v [Y [V ->]]]]; cbn [possible] in V; subst v;
    destruct (no_tie y Y) as [H L]; destruct (ratio_derive y) as [d E].
  - apply (filter_imp (fun t => indicator (ratio_of t y - 1 - eps) = indicator (ratio_of (theta S) y - 1 - eps))).
    + intros t Q. cbn [val]. etransitivity; [exact (value_high t t y)|]. rewrite Q. symmetry. exact (value_high (theta S) (theta S) y).
    + apply (indicator_settled (fun t => ratio_of t y - 1 - eps) (theta S) d); [|lra].
      apply (is_derive_ext (fun t => ratio_of t y + (- 1 - eps))); [intros; simpl; ring|].
      replace d with (d + 0) by ring. apply (derive_plus (fun t => ratio_of t y)); [exact E|apply derive_const].
  - apply (filter_imp (fun t => indicator (1 - ratio_of t y - eps) = indicator (1 - ratio_of (theta S) y - eps))).
    + intros t Q. cbn [val]. etransitivity; [exact (value_low t t y)|]. rewrite Q. symmetry. exact (value_low (theta S) (theta S) y).
    + apply (indicator_settled (fun t => 1 - ratio_of t y - eps) (theta S) (-1 * d)); [|lra].
      apply (is_derive_ext (fun t => (1 - eps) + -1 * ratio_of t y)); [intros; simpl; ring|].
      replace (-1 * d) with (0 + -1 * d) by ring. apply derive_plus; [apply derive_const|]. apply (derive_scal (fun t => ratio_of t y)). exact E.
Qed.
Hypothesis eps_ok : 0 <= eps.
Lemma clip_by_sides r : clip r = r + indicator (r - 1 - eps) * (1 + eps - r) + indicator (1 - r - eps) * (1 - eps - r).
Proof.
  unfold clip, indicator, Rmax, Rmin. destruct (Rlt_dec 0 (r - 1 - eps)), (Rlt_dec 0 (1 - r - eps)), (Rle_dec r (1 + eps)); try lra;
    destruct (Rle_dec (1 - eps) _); lra.
Qed.
Lemma inside_by_sides r : inside_clip r = 1 - indicator (r - 1 - eps) - indicator (1 - r - eps).
Proof.
  unfold inside_clip, indicator. destruct (Rlt_dec 0 (r - 1 - eps)), (Rlt_dec 0 (1 - r - eps)), (Rlt_dec r (1 - eps)), (Rlt_dec (1 + eps) r); lra.
Qed.
Lemma one_value e : den e [(1%Q, [], [])] = 1. Proof. cbn [den dterm dmon dlin]. rewrite exp_0, Q2R_1. ring. Qed.
Notation all := Parts_shipped.all_hold.
Definition clip_gradient : Prop :=
  Derive (fun t => average S Mmu (fun x => A x * clip (ratio_of t x))) (theta S) =
  average S Mmu (fun x => A x * inside_clip (ratio_of (theta S) x) * (ratio_of (theta S) x * s S x)).
Lemma clip_gradient_here : clip_gradient.
Proof.
  assert (K2 : last_holds U par (Scripts.parts (part_named Parts_shipped.parts "shipped.ratio-mask part 2"%string))).
  { apply (last_ok _ (named_means _ "shipped.ratio-mask part 2"%string all) eq_refl U par par_ok). exact (satisfied_bounds [] ltac:(easy)). }
  assert (K3 : last_holds U par (Scripts.parts (part_named Parts_shipped.parts "shipped.ratio-mask part 3"%string))).
  { apply (last_ok _ (named_means _ "shipped.ratio-mask part 3"%string all) eq_refl U par par_ok). exact (satisfied_bounds _ no_sample_crosses). }
  let c := eval vm_compute in (rev (Scripts.parts (part_named Parts_shipped.parts "shipped.ratio-mask part 2"%string))) in
    lazymatch c with ?c :: _ => change (true_part U par c) in K2 end.
  let c := eval vm_compute in (rev (Scripts.parts (part_named Parts_shipped.parts "shipped.ratio-mask part 3"%string))) in
    lazymatch c with ?c :: _ => change (true_part U par c) in K3 end.
  data K2. data K3. unfold clip_gradient.
  assert (Pa : par 0%nat false = eps) by reflexivity.
  etransitivity; [|etransitivity; [exact (eq_trans (eq_sym K3) K2)|]]; clear K2 K3.
  - apply Derive_ext; intros t. cbn [moved]. rewrite one_value, Rmult_1_l, Rplus_0_r. unfold moving, mean_at, average.
    cbn [draws E spread stepwise support]. apply Sum_ext. intros x _. apply f_equal.
    unfold as_loss. cbn [den dterm dlin dmon val Setting.add nobody same_slot scode Nat.eqb Sum each map scope names with_names].
    rewrite !power_1, !exp_0, Q2R_1, Q2R_m1, !Rmult_1_l, !Rmult_1_r, !Rplus_0_r.
    change (nobody U Whole) with (@nil (outcome S)).
    set (h := N 0%nat t t _). replace h with (indicator (ratio_of t x - 1 - eps)) by (symmetry; exact (value_high t t x)). clear h.
    set (l := N 1%nat t t _). replace l with (indicator (1 - ratio_of t x - eps)) by (symmetry; exact (value_low t t x)). clear l.
    rewrite clip_by_sides, Pa. change (any U 0%nat [x]) with (A x). change (q U t x) with (q S t x). change (mu U x) with (mu S x).
    fold (ratio_of t x). ring.
  - unfold mean, mean_at, average. cbn [draws E spread stepwise support]. apply Sum_ext. intros x _. apply f_equal.
    unfold env. cbn [val Setting.add nobody same_slot scode Nat.eqb Sum each map scope names with_names].
    rewrite !power_1, Q2R_m1, !Rmult_1_l, !Rmult_1_r, !Rplus_0_r.
    change (nobody U Whole) with (@nil (outcome S)).
    set (h := N 0%nat (theta U) (theta U) _). replace h with (indicator (ratio_of (theta S) x - 1 - eps)) by (symmetry; exact (value_high (theta S) (theta S) x)). clear h.
    set (l := N 1%nat (theta U) (theta U) _). replace l with (indicator (1 - ratio_of (theta S) x - eps)) by (symmetry; exact (value_low (theta S) (theta S) x)). clear l.
    rewrite inside_by_sides. change (any U 0%nat [x]) with (A x). change (s U x) with (s S x).
    change (ln (q U (theta U) x) - ln (mu U x)) with (ln (q S (theta S) x) - ln (mu S x)). fold (ratio_of (theta S) x). ring.
Qed.
End Named.
(* E_mu[A clip(rho, 1 - eps, 1 + eps)], where no sample is at a bound: its gradient is that of A rho inside the clip, and 0 outside *)
Theorem a_clip_drops_the_gradient : 0 <= eps ->
  (forall x, In x (outcomes S) -> ratio_of (theta S) x <> 1 + eps /\ ratio_of (theta S) x <> 1 - eps) ->
  Derive (fun t => average S Mmu (fun x => A x * clip (ratio_of t x))) (theta S) =
  average S Mmu (fun x => A x * inside_clip (ratio_of (theta S) x) * (ratio_of (theta S) x * s S x)).
Proof. intros E H. destruct (names_exist T par bounds_ ordered_bounds) as [N D]. exact (clip_gradient_here N D H E). Qed.
End Clip.
