(* The rules are sound: whatever an instance says is 0, is 0. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Derivatives Densities Independence Along Names.
From Klsym Require Export Instances.
Import ListNotations.
Open Scope R_scope.

Section Soundness.
Variable S : setting.
Variable par : nat -> bool -> R.
Hypothesis par_ok : forall i, par i true <> 0.
Notation env := (env S par). Notation dside := (dside S par). Notation datom := (datom S par). Notation holds := (holds S par).
Notation env_ok := (env_ok S par par_ok). Notation same_ok := (same_ok S par par_ok). Notation only_ok := (only_ok S par).

Theorem zero_of_ok pr known r z : holds pr -> List.Forall (fun a => dside a = 0) known ->
  zero_of pr known r = Some z -> dside z = 0.
Proof.
  intros P K. destruct r; cbn [zero_of]; unfold guard; intros H.
  - destruct (smooth L && within (has_slope pr m i) L)%bool eqn:Sm; [|discriminate]. apply andb_prop in Sm as [Sm Sl].
    apply Some_inj in H; subst z. apply same_ok. rewrite only_ok.
    cbn [Statements.datom]. rewrite (grad_ok S par par_ok pr P i m L Sm Sl). apply mean_at_ext; intros w. now rewrite attach_ok.
  - apply Some_inj in H; subst z. apply same_ok. rewrite only_ok. cbn [Statements.datom]. apply mean_at_ext; intros w.
    now rewrite attach_ok.
  - destruct (log_derivative_side pr l) as [b|] eqn:B; [|discriminate]. apply Some_inj in H; subst z. apply same_ok.
    cbn [Statements.datom]. apply is_derive_unique, (log_derivative_ok S par par_ok pr P), B.
  - destruct (summed m && summed n)%bool eqn:G; [|discriminate]. apply Some_inj in H; subst z.
    apply andb_prop in G as [G1 G2]. apply same_ok. rewrite only_ok. cbn [Statements.datom].
    rewrite (Stepwise.change_of_measure_at S m n i _ G1 G2). apply mean_at_ext; intros w.
    rewrite mul_ok, tidy_ok, (ratio_ok S par) by first [easy|apply env_ok]. reflexivity.
  - destruct (upstream i z0 c) eqn:G; [|discriminate]. apply Some_inj in H; subst z. rewrite only_ok. cbn [Statements.datom].
    rewrite <- (upstream_score S par i z0 c G). apply mean_at_ext; intros w. rewrite mul_ok, tidy_ok, var_ok by apply env_ok.
    unfold score. rewrite (env_sum S par) by easy. reflexivity.
  - destruct (probability m && probability n && upstream i z0 c)%bool eqn:G; [|discriminate].
    apply Some_inj in H; subst z. apply andb_prop in G as [G C]. apply andb_prop in G as [G1 G2].
    apply same_ok. rewrite only_ok. cbn [Statements.datom]. rewrite <- (upstream_ratio S par i z0 m n c G1 G2 C).
    apply mean_at_ext; intros w. unfold ratio_at. assert (Sm : summed m = true) by now destruct m. assert (Sn : summed n = true) by now destruct n.
    rewrite mul_ok, tidy_ok, exp_ok, (log_ratio_ok S par) by first [easy|apply env_ok]. reflexivity.
  - destruct (normed m && constant c && negb (stepwise i))%bool eqn:G; [|discriminate]. apply Some_inj in H; subst z.
    apply andb_prop in G as [G T]. apply andb_prop in G as [G C]. apply negb_true_iff in T.
    apply same_ok. rewrite (mean_constant S par i m c) by easy. cbn [Statements.dside dproduct]. ring.
  - destruct (sums_up b && of_whole a)%bool eqn:G; [|discriminate]. apply Some_inj in H; subst z.
    apply andb_prop in G as [B A]. apply same_ok. rewrite only_ok. now apply over_steps.
  - destruct (eparts put_parts a) as [b|] eqn:A; [|discriminate]. destruct (stepwise i) eqn:T; [|discriminate]. apply Some_inj in H; subst z.
    apply same_ok. rewrite only_ok. now apply in_parts.
  - destruct (stepwise i && sums_up b && sums_up c && not_of_steps a)%bool eqn:G; [|discriminate]. apply Some_inj in H; subst z.
    apply andb_prop in G as [G A]. apply andb_prop in G as [G C]. apply andb_prop in G as [T B].
    apply same_ok. rewrite only_ok. now apply exchanged.
  - destruct (probability m) eqn:M; [|discriminate]. destruct (apart pr i m t) as [b|] eqn:B; [|discriminate].
    apply Some_inj in H; subst z. apply same_ok. cbn [Statements.datom].
    rewrite <- (apart_ok S par par_ok pr i m t b P M B). apply mean_at_ext; intros w. cbn [den]. ring.
  - destruct (name_slope pr m i zs k) as [d|] eqn:D; [|discriminate]. apply Some_inj in H; subst z. apply same_ok. rewrite only_ok.
    cbn [Statements.datom]. apply mean_at_reached. intros w W. rewrite !mul_ok, !tidy_ok, var_ok by apply env_ok.
    now rewrite (name_slope_ok S par par_ok pr P m i zs k d w W D).
  - destruct (gap pr m i zs k c) as [x|] eqn:G; [|discriminate]. apply Some_inj in H; subst z. rewrite only_ok. cbn [Statements.datom].
    rewrite <- (mean_at_zero S (theta S) m i). apply mean_at_reached. intros w W. rewrite mul_ok by apply env_ok.
    rewrite (gap_ok S par par_ok pr P m i zs k c x w W G). ring.
  - apply Some_inj in H; subst z. apply same_ok. rewrite only_ok. cbn [Statements.datom]. apply mean_at_ext. intros w.
    symmetry. now apply reduce_ok.
  - destruct (vanishes_in pr m i x cell l) eqn:G; [|discriminate]. apply Some_inj in H; subst z. rewrite only_ok. cbn [Statements.datom].
    rewrite <- (mean_at_zero S (theta S) m i). apply mean_at_reached. intros w W. rewrite mul_ok by apply env_ok.
    rewrite (vanishes_in_ok S par par_ok pr P m i x cell l w W G). ring.
  - destruct (nth_error (equal_now pr) i) as [[a b]|] eqn:N; [|discriminate]. apply Some_inj in H; subst z.
    apply nth_error_In in N. rewrite app_ok, (minus_ok S par par_ok), (proj1 P _ _ N). ring.
  - destruct (nth_error (equal_always pr) i) as [[a b]|] eqn:N; [|discriminate]. apply Some_inj in H; subst z.
    apply nth_error_In in N. apply same_ok. rewrite only_ok. cbn [Statements.datom].
    apply Derive_ext_loc. exact (proj1 (proj2 P) _ _ N).
  - rewrite List.Forall_forall in K. apply K. eapply nth_error_In, H.
Qed.

(* a sum of zeros *)
Fixpoint zeros (pr : premises) (known : list side) (l : list (side * rule)) : option side :=
  match l with
  | [] => Some []
  | (f, r) :: l =>
      match zero_of pr known r, zeros pr known l with
      | Some z, Some rest => Some (stimes f z ++ rest) | _, _ => None end end.
Lemma zeros_ok pr known l z : holds pr -> List.Forall (fun a => dside a = 0) known ->
  zeros pr known l = Some z -> dside z = 0.
Proof.
  intros P K. revert z; induction l as [|[f r] l IH]; intros z; cbn [zeros].
  - now intros [= <-].
  - destruct (zero_of pr known r) eqn:Z; [|discriminate]. destruct (zeros pr known l); [|discriminate].
    intros [= <-]. rewrite app_ok, stimes_ok, (zero_of_ok _ _ _ _ P K Z), (IH _ eq_refl) by exact par_ok. ring.
Qed.
End Soundness.
